// A sum needs one addition for every 4 bytes, so a GPU only has to keep the memory busy. Trees, barriers,
// idle threads and blocks that end too soon prevent that.
#include "lab/experiment.h"
#include "total.h"

namespace fathom::lab::reduction {

Total::Total(const Point& at, Arena& arena)
    : in(arena.input<float>({at["n"]}, Uniform{0, 1})),
      out(arena.output<float>({1})),
      partial(arena.workspace<float>({at["n"] / 128 + (1 << 18)})),
      ticket(arena.workspace<uint32_t>({1})) {}

Cost Total::cost() const {
  return {.read = in.bytes(), .written = out.bytes(), .flops = static_cast<double>(in.size())};
}

void Total::check(Checker& checker) const {
  checker.values("out", out, [this](int64_t) {
    constexpr int kLanes = 16;  // so that the compiler may use vectors without changing the order
    double lane[kLanes]  = {};
    const float* x       = in.data();
    const int64_t n      = in.size();
    int64_t i            = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lane[l] += x[i + l];
    for (; i < n; ++i) lane[0] += x[i];
    double sum = 0;
    for (const double part : lane) sum += part;
    // No term is negative. Roundings in a row: those of one of 65536 running sums, and a tree above them.
    return Sum{.value = sum, .magnitude = sum, .length = n / 65536 + 64};
  });
}

const Experiment<Total> total{
    .question =
        "How near to read bandwidth does the sum of an array come, and what does each step of the classic "
        "ladder gain?",
    .limit    = Limit::memory,
    .axes     = {{"n", {268435456}}},
    .check_at = {{"n", {0,    1,    2,     3,     4,     5,     31,     33,      255,     256,     257,
                        1021, 4099, 16383, 16384, 16385, 65537, 270337, 1081345, 4194303, 16777259}}},
    .variants =
        {
            {.id         = "interleaved",
             .launch     = on_gpu(interleaved),
             .techniques = {"shared_memory"},
             .idea       = "a tree in shared memory, neighbours first",
             .prediction = predict::share(0.17)},
            {.id         = "sequential",
             .launch     = on_gpu(sequential),
             .techniques = {"shared_memory", "divergence_avoidance", "bank_conflict_avoidance", "unrolling"},
             .idea       = "adds halves, so that whole warps become idle; unrolled",
             .prediction = predict::ratio(1.15)},
            {.id         = "shuffled",
             .launch     = on_gpu(shuffled),
             .techniques = {"warp_shuffle"},
             .idea       = "lanes add each other's registers, one barrier a block",
             .prediction = predict::ratio(1.3)},
            {.id         = "grid_stride",
             .launch     = on_gpu(grid_stride),
             .techniques = {"warp_shuffle", "instruction_level_parallelism"},
             .idea       = "resident blocks only, four sums and four loads in each thread",
             .prediction = predict::share_at_least(0.8)},
            {.id         = "vectorized",
             .launch     = on_gpu(vectorized),
             .techniques = {"warp_shuffle", "instruction_level_parallelism", "unrolling", "vectorization"},
             .idea       = "16-byte loads, blocks of 64 KiB; a second pass of one block",
             .prediction = predict::share_at_least(0.92)},
            {.id         = "one_pass",
             .launch     = on_gpu(one_pass),
             .techniques = {"warp_shuffle", "instruction_level_parallelism", "unrolling", "vectorization"},
             .idea       = "the same, but the block with the last ticket adds up the blocks' sums",
             .prediction = predict::share_at_least(0.92)},
            {.id         = "cub",
             .launch     = on_gpu(cub_reduce),
             .idea       = "cub::DeviceReduce::Sum",
             .prediction = predict::share_at_least(0.9),
             .kind       = Kind::library},
        },
    .backend = Backend::cuda,
    .catalog = {"tiling-006", "memory-019"},
};
FATHOM_REGISTER(total);

}  // namespace fathom::lab::reduction
