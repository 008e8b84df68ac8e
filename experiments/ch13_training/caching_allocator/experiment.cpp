// An allocator answers many small questions a step. Who asks the driver each time pays for it each time; who
// keeps memory pays in memory that nobody uses.
#include "lab/experiment.h"

#include <algorithm>
#include <iterator>

#include "replay.h"

namespace fathom::lab::caching_allocator {

Replay::Replay(const Point& at, Arena& arena)
    : trace(std::make_shared<const Trace>(moe_serving_trace(at["steps"]))),
      tag(arena.input<int32_t>({std::ssize(trace->bytes)}, Uniform{0, 1 << 20})),
      out(arena.output<int32_t>({std::ssize(trace->bytes)})),
      reserved(arena.output<double>({1}, Pages::small, Place::host)) {}

Cost Replay::cost() const { return {.read = tag.bytes(), .written = out.bytes()}; }

int64_t Replay::expected(int64_t a) const {
  const int64_t words = std::min<int64_t>(kMostWords, trace->bytes[static_cast<size_t>(a)] / 4);
  return words * tag(a) + words * (words - 1) / 2;
}

void Replay::metrics(CallMetrics& metrics) const {
  if (trace->peak_bytes == 0) return;
  const auto in_use                  = static_cast<double>(trace->peak_bytes);
  metrics["reserved_bytes"]          = {reserved(0), "lower"};
  metrics["peak_in_use_bytes"]       = {in_use, "lower"};
  metrics["reserved_over_peak_used"] = {reserved(0) / in_use, "lower"};
}

namespace {

// All declare .syncs: the host's time in the allocator is the subject.
const Experiment<Replay> serving_steps{
    .question =
        "What do the allocations of an MoE serving step cost, in time and in memory that is reserved and not "
        "used: by cudaMalloc, a pool, size classes, or an arena that grows?",
    .limit    = Limit::none,
    .axes     = {{"steps", {4, 16}}},
    .check_at = {{"steps", {0, 1, 3, 5}}},
    .variants =
        {
            {.id         = "cuda_malloc",
             .techniques = {},
             .idea       = "cudaMalloc and cudaFree for each tensor",
             .prediction = predict::nothing(),
             .prepare    = prepared_on_gpu(cuda_malloc),
             .syncs      = true},
            {.id         = "stream_ordered_pool",
             .techniques = {"stream_ordered_allocation"},
             .idea       = "cudaMallocAsync from a pool that keeps its memory",
             .prediction = predict::ratio_at_least(8),
             .prepare    = prepared_on_gpu(stream_ordered_pool),
             .syncs      = true},
            {.id         = "size_classes",
             .techniques = {"caching_allocator"},
             .idea       = "freed blocks wait in lists, a list for each of four sizes a power of two",
             .prediction = predict::ratio_at_least(10),
             .prepare    = prepared_on_gpu(size_classes),
             .syncs      = true},
            {.id         = "vmm_arena",
             .techniques = {"caching_allocator"},
             .idea       = "one range of virtual memory that grows in place; gaps are split and merged",
             .prediction = predict::ratio_at_least(10),
             .prepare    = prepared_on_gpu(vmm_arena),
             .syncs      = true},
            {.id         = "planned",
             .techniques = {},
             .idea       = "the floor: all places worked out beforehand",
             .prediction = predict::ratio_at_least(10),
             .prepare    = prepared_on_gpu(planned),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-021"},
};
FATHOM_REGISTER(serving_steps);

}  // namespace
}  // namespace fathom::lab::caching_allocator
