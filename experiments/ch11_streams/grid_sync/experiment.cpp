// The end of a kernel makes all blocks wait for all, and costs the start of another. Which group has to wait,
// and can it wait inside one kernel?
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
        "Every element waits for the norm of all: what does the wait cost between two kernels, and what "
        "inside one, for all blocks of the GPU or for the blocks of one cluster?",
    .limit = Limit::memory,
    // 4 MiB, which L2 holds between the phases; 256 KiB; and 256 MiB, which it does not hold.
    .axes = {{"n", {1 << 20, 1 << 16, 1 << 26}}},
    // A block takes 2048 elements, a cluster 16384.
    .check_at = {{"n", {0, 1, 2, 3, 4, 5, 2047, 2048, 2049, 4099, 16384, 16385, 65536, 1000003}}},
    .variants =
        {
            {.id         = "two_kernels",
             .launch     = on_gpu(two_kernels),
             .techniques = {},
             .idea       = "the wait is the end of a kernel; every block adds up the sums of all"},
            {.id         = "last_block",
             .launch     = on_gpu(last_block),
             .techniques = {},
             .idea       = "the block that ends last adds up the sums, for the second kernel",
             .prediction = predict::ratio(1.0)},
            // A kernel's start in a stream costs about 2 us, a grid-wide barrier of 400 to 500 blocks the
            // same or a little less.
            {.id         = "cooperative",
             .launch     = on_gpu(cooperative),
             .techniques = {"cooperative_groups"},
             .idea       = "one kernel with grid.sync() in the middle",
             .prediction = predict::ratio_at_least(1.0)},
            {.id         = "one_cluster",
             .launch     = on_gpu(one_cluster),
             .techniques = {"cooperative_groups", "clusters", "dsmem"},
             .idea       = "one cluster of 8 blocks with cluster.sync() in the middle",
             .prediction = predict::ratio_at_least(1.1),
             .needs      = {machine::Feature::clusters},
             .up_to      = {{"n", 1 << 16}}},
        },
    .backend = Backend::cuda,
    .catalog = {"pipeline-018"},
};
FATHOM_REGISTER(clip);

}  // namespace
}  // namespace fathom::lab::grid_sync
