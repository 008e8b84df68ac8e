// How a launch runs on the CPU: what a tuner chooses. No choice changes a bit of the results (rows are summed
// in one order, and a row of a product depends on no other), so that time alone decides.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compile/fuse.h"

namespace fathom {
class ThreadPool;
}

namespace fathom::compile {

struct Schedule {
  int64_t block = 1024;   // numbers that a tape works on at once: they should stay in L1
  int64_t chunk = 65536;  // numbers of a matmul's rows that are finished before the next: in L2
  bool threads  = true;   // shared among all threads; else the caller's own work, without fork and join

  bool operator==(const Schedule&) const = default;
};
using Schedules = std::vector<Schedule>;  // of a plan's groups

inline constexpr int64_t kBlocks[] = {256, 512, 1024, 2048, 4096};
inline constexpr int64_t kChunks[] = {16384, 65536, 262144};

// Whether a launch has that choice.
bool chooses_block(const Group& group);
bool chooses_chunk(const Graph& graph, const Group& group);

// Schedules are kept for extents up to the next power of two.
inline int64_t bucket(int64_t symbol) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(symbol)));
}

// Gives the schedules of a plan at these extents.
using Scheduler = std::function<Schedules(const Graph& graph, const Plan& plan,
                                          std::span<const int64_t> symbols, ThreadPool& pool)>;

// Without a measurement: the largest block with which a tape's values fill half of L1, chunks that fill half
// of L2, and threads for launches whose bytes and flops take more than a few times a fork and join.
Schedules schedules_by_rule(const Graph& graph, const Plan& plan, std::span<const int64_t> symbols,
                            ThreadPool& pool);

}  // namespace fathom::compile
