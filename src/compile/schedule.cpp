#include "compile/schedule.h"

#include <algorithm>

#include "core/thread_pool.h"
#include "machine/topology.h"

namespace fathom::compile {
namespace {

// The largest of the choices with at most so many numbers; the smallest where all are above.
int64_t largest_within(std::span<const int64_t> choices, int64_t numbers) {
  int64_t largest = choices.front();
  for (const int64_t choice : choices)
    if (choice <= numbers) largest = choice;
  return largest;
}

int64_t numbers_in_half_of(int level, int64_t fallback_bytes) {
  const machine::CpuCache* cache = machine::data_cache(machine::topology(), level);
  return (cache ? cache->bytes : fallback_bytes) / 2 / static_cast<int64_t>(sizeof(float));
}

// A guess of one thread's time, of what a core of a server does.
double seconds_alone(const Graph& graph, const Group& group, std::span<const int64_t> symbols) {
  constexpr double kBytes = 20e9, kTapeFlops = 5e9, kMatmulFlops = 50e9;  // a second
  double seconds = group.bytes(graph, symbols) / kBytes;
  for (const int id : group.nodes)
    seconds += flops_of(graph[id].op, graph.operand_types(graph[id]), graph[id].type, symbols) /
               (id == group.matmul ? kMatmulFlops : kTapeFlops);
  return seconds;
}

}  // namespace

bool chooses_block(const Group& group) { return group.tape.has_value(); }

bool chooses_chunk(const Graph& graph, const Group& group) {
  return group.matmul >= 0 &&
         (group.tape || graph[graph[group.matmul].operands[0]].type.dtype == DType::bf16);
}

Schedules schedules_by_rule(const Graph& graph, const Plan& plan, std::span<const int64_t> symbols,
                            ThreadPool& pool) {
  constexpr double kForkJoin = 5e-6;
  Schedules schedules;
  for (const Group& group : plan.groups) {
    Schedule schedule;
    if (chooses_block(group)) {
      // As many blocks at once as the tape has tensors, and two for values between its chains.
      const auto values = static_cast<int64_t>(group.tape->leaves.size()) + 2;
      schedule.block    = largest_within(kBlocks, numbers_in_half_of(1, 32 << 10) / values);
    }
    if (chooses_chunk(graph, group))
      schedule.chunk = largest_within(kChunks, numbers_in_half_of(2, 512 << 10));
    schedule.threads = pool.threads() > 1 && seconds_alone(graph, group, symbols) > 4 * kForkJoin;
    schedules.push_back(schedule);
  }
  return schedules;
}

}  // namespace fathom::compile
