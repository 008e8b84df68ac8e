// y(t, n) = bias(n) + sum_k x(t, k) w(n, k), or that added to y
//
// bytes   2 N K of weights, read once whatever T
// flops   2 T N K
// limit   memory bandwidth up to a handful of rows, the FMA units beyond
// idea    lanes along k, so that weights are used as they lie and a row's sum knows nothing of other rows. A
//         word is two weights: shifted, or masked, each is a float, and rows are put in that order first. A
//         handful of rows takes weights from memory four outputs at a time; many pass over 24 outputs that
//         stay in L2, in tiles of 4 x 6 sums that share what they load (dot_tile.h)
#include "kernels/linear.h"

#include <fmt/format.h>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/dot_scratch.h"
#include "kernels/panel_queue.h"

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither: Highway would add code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h: compiled for each instruction set.
#include "kernels/dot_tile.h"

#ifndef FATHOM_KERNELS_LINEAR_CPU
#define FATHOM_KERNELS_LINEAR_CPU
namespace fathom::kernels {
namespace {

struct LinearScratch {
  float* prepared;     // [T, K padded]
  const float** rows;  // [T], of prepared
  TileScratches tiles;

  LinearScratch(int64_t rows, int64_t depth, int threads, ScratchCutter& cutter)
      : prepared(cutter.cut<float>(rows * round_up(depth, kOrder))),
        rows(cutter.cut<const float*>(rows)),
        tiles(depth, threads, cutter) {}
};

}  // namespace
}  // namespace fathom::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

#if FATHOM_KERNELS_HAVE_TILE

void linear(View<const float, 2> x, View<const bf16, 2> w, View<const bf16, 1> bias, Output output,
            View<float, 2> y, const Execution& on) {
  const int64_t count = x.extent(0), depth = w.extent(1), outputs = w.extent(0);
  ScratchCutter cutter(on.scratch);
  const LinearScratch scratch(count, depth, on.threads->threads(), cutter);

  on.threads->parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* prepared = scratch.prepared + t * round_up(depth, kOrder);
      prepare_row<Bf16Matrix>(x.data() + t * x.stride(0), depth, prepared);
      scratch.rows[t] = prepared;
    }
  });

  const Bf16Matrix matrix{w.data(), depth, w.stride(0)};
  PanelQueue queue(1, round_up(outputs, kPanel) / kPanel, on.threads->threads());
  on.threads->run([&](int worker) {
    const TileScratch tile = scratch.tiles.of(worker);
    for (auto run = queue.take(); run.begin < run.end; run = queue.take())
      dot_products(matrix, scratch.rows, count, run.begin * kPanel, std::min(run.end * kPanel, outputs), tile,
                   [&](int64_t first, int64_t rows, int64_t n0, int64_t n1, const float* sums) {
                     for (int64_t r = 0; r < rows; ++r) {
                       float* out = y.data() + (first + r) * y.stride(0);
                       for (int64_t n = n0; n < n1; ++n) {
                         const float sum =
                             sums[r * kPanel + n - n0] + (bias.data() ? static_cast<float>(bias(n)) : 0.0f);
                         out[n] = output == Output::add ? out[n] + sum : sum;
                       }
                     }
                   });
  });
}

#else

void linear(View<const float, 2> x, View<const bf16, 2> w, View<const bf16, 1> bias, Output output,
            View<float, 2> y, const Execution& on) {
  linear_reference(x, w, bias, output, y, on);
}

#endif

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::kernels {

HWY_EXPORT(linear);

void linear_cpu(View<const float, 2> x, View<const bf16, 2> w, View<const bf16, 1> bias, Output output,
                View<float, 2> y, const Execution& on) {
  const int64_t rows = x.extent(0), depth = x.extent(1), outputs = w.extent(0);
  FATHOM_EXPECT(w.extent(1) == depth && y.extent(0) == rows && y.extent(1) == outputs,
                fmt::format("x [{}, {}] and w [{}, {}] make no y [{}, {}]", rows, depth, outputs, w.extent(1),
                            y.extent(0), y.extent(1)));
  FATHOM_EXPECT(bias.data() == nullptr || bias.extent(0) == outputs,
                fmt::format("a bias of {} for {} outputs", bias.extent(0), outputs));
  FATHOM_EXPECT((depth <= 1 || (x.stride(1) == 1 && w.stride(1) == 1)) && (outputs <= 1 || y.stride(1) == 1),
                "rows of x, w and y must be contiguous");
  if (rows == 0 || outputs == 0) return;
  HWY_DYNAMIC_DISPATCH(linear)(x, w, bias, output, y, on);
}

int64_t linear_cpu_scratch_bytes(int64_t rows, int64_t depth, int threads) {
  ScratchCutter counter;
  LinearScratch(rows, depth, threads, counter);
  return counter.used();
}

}  // namespace fathom::kernels
#endif
