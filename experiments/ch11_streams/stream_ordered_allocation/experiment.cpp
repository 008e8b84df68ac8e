// cudaMalloc and cudaFree act at once, so they must wait for work that may still use the memory.
// cudaMallocAsync and cudaFreeAsync act when the stream gets to them.
#include "lab/experiment.h"

#include "layers.h"

namespace fathom::lab::stream_ordered_allocation {

Layers::Layers(const Point& at, Arena& arena)
    : in(arena.input<float>({kLayers, at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({kLayers, at["n"]})),
      workspace(arena.workspace<float>({at["n"]})) {}

Cost Layers::cost() const {
  return {.read = in.bytes(), .written = out.bytes(), .flops = 2.0 * static_cast<double>(out.size())};
}

Sum Layers::expected(int64_t l, int64_t i) const {
  const double a = in(l, i), b = in(l, n() - 1 - i);
  return {.value = a * a + b * b, .magnitude = a * a + b * b, .length = 2};
}

namespace {

// All declare .syncs: the host's time in the allocator is the subject.
const Experiment<Layers> layers{
    .question = "What does memory for an intermediate result cost when each layer allocates and frees it?",
    .limit    = Limit::memory,
    .axes     = {{"n", {1 << 20, 1 << 24}}},  // 4 MiB and 64 MiB of squares
    .check_at = {{"n", {0, 1, 2, 255, 256, 257, 100003}}},
    .variants =
        {
            {.id         = "malloc_free",
             .launch     = on_gpu(malloc_free),
             .techniques = {},
             .idea       = "cudaMalloc and cudaFree in each layer",
             .prediction = predict::nothing(),
             .syncs      = true},
            {.id         = "default_pool",
             .launch     = on_gpu(default_pool),
             .techniques = {"stream_ordered_allocation"},
             .idea       = "cudaMallocAsync, cudaFreeAsync; the pool is empty at each call's begin",
             .prediction = predict::ratio_at_least(2),
             .syncs      = true},
            {.id         = "keeping_pool",
             .techniques = {"stream_ordered_allocation"},
             .idea       = "the same from a pool that keeps its memory",
             .prediction = predict::ratio_at_least(4),
             .prepare    = prepared_on_gpu(keeping_pool),
             .syncs      = true},
            {.id         = "preallocated",
             .launch     = on_gpu(preallocated),
             .techniques = {},
             .idea       = "one piece of memory, allocated before all calls",
             .prediction = predict::ratio_at_least(5),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .catalog = {"streams-004"},
};
FATHOM_REGISTER(layers);

}  // namespace
}  // namespace fathom::lab::stream_ordered_allocation
