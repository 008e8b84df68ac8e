// A copy to the device is a thing to start, and to wait for, before the kernels that need the data. A kernel
// can also read page-locked memory of the host where it lies. Then nothing is waited for, but what is read
// twice crosses the link twice.
#include <algorithm>
#include <cmath>

#include "lab/experiment.h"
#include "normalization.h"

namespace fathom::lab::zero_copy {

Normalization::Normalization(const Point& at, Arena& arena)
    : in(arena.input<float>({at["bytes"] / 4}, Uniform{-1, 1}, Pages::huge, Place::pinned)),
      copy(arena.workspace<float>({at["bytes"] / 4})),
      largest_of(arena.workspace<float>({kMostBlocks})),
      out(arena.output<float>({at["bytes"] / 4})) {}

Cost Normalization::cost() const {
  return {.written = out.bytes(), .flops = 2 * static_cast<double>(in.extent(0)), .link = in.bytes()};
}

void Normalization::check(Checker& checker) const {
  double largest = 0;
  for (int64_t i = 0; i < in.extent(0); ++i) largest = std::max(largest, std::abs(double{in(i)}));
  checker.values("out", out, [&](int64_t i) {
    const double value = largest > 0 ? in(i) / largest : 0;
    return Sum{.value = value, .magnitude = std::abs(value), .length = 2};  // a reciprocal and a product
  });
}

const Experiment<Normalization> normalization{
    .question = "From which size on is data worth copying to the device before a kernel uses it twice?",
    .limit    = Limit::link,
    .axes     = {{"bytes", {64 << 20, 1 << 20, 320 << 10, 64 << 10, 4 << 10}}},
    .check_at = {{"bytes",
                  {0, 4, 8, 12, 16, 20, 4092, 4096, 4100, 40036, (400 << 10) - 4, 400 << 10, 2162692,
                   8650756}}},
    .variants =
        {
            {.id         = "copy_then_use",
             .launch     = on_gpu(copy_then_use),
             .techniques = {},
             .idea       = "a copy to the device, and two walks over it there",
             .prediction = predict::share(0.93)},
            {.id         = "mapped",
             .launch     = on_gpu(mapped),
             .techniques = {"zero_copy", "pinned_memory"},
             .idea       = "both walks read the host's memory: nothing to start, twice across the link",
             .prediction = predict::ratio(0.55)},
            {.id         = "by_size",
             .launch     = on_gpu(by_size),
             .techniques = {"zero_copy", "pinned_memory", "link_bandwidth"},
             .idea       = "mapped below 400 KiB, copied from there on",
             .prediction = predict::ratio_at_least(1)},
            {.id         = "kept",
             .launch     = on_gpu(kept),
             .techniques = {"zero_copy", "pinned_memory", "memory_tiers"},
             .idea       = "the first walk reads across the link and leaves a copy for the second",
             .prediction = predict::ratio_at_least(1)},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-001"},
};
FATHOM_REGISTER(normalization);

}  // namespace fathom::lab::zero_copy
