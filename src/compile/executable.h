// A plan that runs on the CPU. For the symbols of its last call it keeps strides, blocks, the slab of
// intermediate tensors and scratch, so that a call with the same extents allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compile/fuse.h"
#include "compile/memory.h"
#include "compile/schedule.h"
#include "compile/tape_cpu.h"
#include "core/buffer.h"
#include "core/thread_pool.h"

namespace fathom::compile {

class Executable {
 public:
  // The graph is verified. No scheduler: every launch has the default schedule.
  Executable(Graph graph, Plan plan, Scheduler scheduler = {});

  // Tensors are row-major: inputs in the order of graph().inputs(), outputs in that of graph().outputs, which
  // overlap neither inputs nor each other. launch_ns: gets each launch's time, where it is not empty.
  void run(std::span<const int64_t> symbols, std::span<const void* const> inputs,
           std::span<void* const> outputs, ThreadPool& pool, std::span<int64_t> launch_ns = {});

  // In place of the scheduler's from now on, at any extents.
  void set_schedules(Schedules schedules);
  const Schedules& schedules() const { return schedules_; }  // of the last call

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  // Bytes of the slab at these extents, and the least that any plan needs.
  Slab slab(std::span<const int64_t> symbols) const { return plan_slab(lifetimes(symbols)); }
  int64_t least_slab(std::span<const int64_t> symbols) const { return live_bytes(lifetimes(symbols)); }

 private:
  struct Launch {
    std::optional<TapeCpu> tape, last_tape;  // of a matmul: for a chunk of rows, and for those that are left
    std::vector<void*> leaves;
    int64_t rows = 0, chunk = 0;
  };
  struct Bound {
    std::vector<int64_t> symbols;
    int threads;
    std::vector<Launch> launches;  // of plan_.groups
    Slab slab;
    Buffer<std::byte> memory;    // the slab
    Buffer<float> scratch;       // of tapes
    Buffer<float> operand;       // rows of a matmul's x in fp32
    Buffer<float> result;        // rows of a matmul's result that only its tape reads
    Buffer<std::byte> matmul;    // scratch of linear_cpu
    std::vector<std::byte*> at;  // of each node with memory
  };

  std::vector<Lifetime> lifetimes(std::span<const int64_t> symbols) const;
  std::unique_ptr<Bound> bind(std::span<const int64_t> symbols, int threads) const;
  const Schedules& scheduled(std::span<const int64_t> symbols, ThreadPool& pool);
  void run_launch(size_t launch, ThreadPool& pool);
  void run_matmul(const Group& group, Launch& launch, ThreadPool& pool);
  int64_t extent(int node, size_t axis, std::span<const int64_t> symbols) const;

  Graph graph_;
  Plan plan_;
  std::vector<int> in_slab_;  // nodes
  std::vector<int> output_;   // of each node: the first output that it is, or -1
  std::vector<int> inputs_;
  Scheduler scheduler_;
  std::map<std::vector<int64_t>, Schedules> scheduled_;  // by buckets of the symbols and threads
  Schedules schedules_;
  ThreadPool caller_{1};  // for launches that are not shared
  std::unique_ptr<Bound> bound_;
};

}  // namespace fathom::compile
