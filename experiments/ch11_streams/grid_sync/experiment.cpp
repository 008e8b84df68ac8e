// The end of a kernel makes all blocks wait for all, and costs the start of another. A cooperative launch
// keeps all blocks resident, so that they can wait for each other inside one kernel.
#include "lab/experiment.h"

#include <cmath>

#include "clip.h"

namespace fathom::lab::grid_sync {

Clip::Clip(const Point& at, Arena& arena)
    : in(arena.input<float>({at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"]})),
      partial(arena.workspace<float>({kMaxBlocks})),
      scale(arena.workspace<float>({1})) {}

Cost Clip::cost() const {
  return {.read = in.bytes(), .written = out.bytes(), .flops = 3.0 * static_cast<double>(in.size())};
}

void Clip::check(Checker& checker) const {
  double squares = 0;
  for (int64_t i = 0; i < in.size(); ++i) squares += static_cast<double>(in(i)) * static_cast<double>(in(i));
  const double norm = std::sqrt(squares), by = norm > double{kMaxNorm} ? double{kMaxNorm} / norm : 1;
  // No square is negative, so the relative error of the norm is that of running sums and a tree above them.
  checker.values("out", out, [&](int64_t i) {
    const double y = static_cast<double>(in(i)) * by;
    return Sum{.value = y, .magnitude = std::abs(y), .length = in.size() / 65536 + 64};
  });
}

namespace {

const Experiment<Clip> clip{
    .question =
        "All elements wait for the norm of all: what does it gain to wait inside one kernel, and to "
        "keep the elements meanwhile?",
    .limit = Limit::memory,
    // 4 MiB and 16 MiB, which L2 holds between the phases, and 256 MiB, which it does not.
    .axes     = {{"n", {1 << 20, 1 << 22, 1 << 26}}},
    .check_at = {{"n", {0, 1, 2, 3, 4, 5, 2047, 2048, 2049, 4099, 16385, 1000003, 8388611}}},
    .variants =
        {
            {.id         = "three_kernels",
             .launch     = on_gpu(three_kernels),
             .techniques = {},
             .idea       = "sums of blocks; the scale; the product",
             .prediction = predict::nothing()},
            {.id         = "two_kernels",
             .launch     = on_gpu(two_kernels),
             .techniques = {},
             .idea       = "every block adds up the sums itself",
             .prediction = predict::ratio_at_least(1)},
            {.id         = "cooperative",
             .launch     = on_gpu(cooperative),
             .techniques = {"cooperative_groups"},
             .idea       = "one kernel, grid.sync() in the middle",
             .prediction = predict::ratio_at_least(1)},
            {.id         = "clusters",
             .launch     = on_gpu(clusters),
             .techniques = {"cooperative_groups", "clusters", "dsmem"},
             .idea       = "clusters of 8 add up in distributed shared memory before grid.sync()",
             .prediction = predict::ratio_at_least(1),
             .needs      = {machine::Feature::clusters}},
            {.id         = "kept",
             .launch     = on_gpu(kept),
             .techniques = {"cooperative_groups"},
             .idea       = "elements stay in shared memory across grid.sync(), as many as fit",
             .prediction = predict::ratio_at_least(1.05)},
        },
    .backend = Backend::cuda,
    .catalog = {"pipeline-018"},
};
FATHOM_REGISTER(clip);

}  // namespace
}  // namespace fathom::lab::grid_sync
