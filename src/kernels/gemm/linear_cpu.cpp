// y(t, n) = bias(n) + sum_k x(t, k) w(n, k), or that added to y
//
// bytes   2 N K of weights in bf16, 1.06 N K in int8, read once whatever T
// flops   2 T N K
// limit   memory bandwidth up to a handful of rows, the FMA units beyond
// idea    SIMD lanes run along k, so that weights are used in their order in memory and a row's sum does not
//         depend on other rows. A 32-bit word is two bf16 weights; shifted or masked each is a float, and
//         rows of x are permuted to that order first. An int8 weight times
//         its group's scale is exact in fp32. A few rows take weights from memory four outputs at a time.
//         Many rows pass over panels of 24 outputs that stay in L2, in register tiles of 4 x 6 sums that
//         share their loads (gemm_microkernel_cpu.h)
#include "kernels/gemm/linear.h"

#include <fmt/format.h>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/gemm/gemm_scratch_cpu.h"
#include "kernels/gemm/panel_scheduler_cpu.h"

#define HWY_DISABLE_PCLMUL_AES  // not part of x86-64-v3; else Highway adds code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/linear_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, because it is compiled for each instruction set.
#include "kernels/gemm/gemm_microkernel_cpu.h"

#ifndef FATHOM_KERNELS_LINEAR_CPU
#define FATHOM_KERNELS_LINEAR_CPU
namespace fathom::kernels {
namespace {

struct LinearScratch {
  float* permuted;     // [T, K padded], permuted rows of x
  const float** rows;  // [T], of permuted
  TileScratches tiles;

  LinearScratch(int64_t rows, int64_t depth, int threads, ScratchAllocator& allocator)
      : permuted(allocator.take<float>(rows * round_up(depth, kRowPadding))),
        rows(allocator.take<const float*>(rows)),
        tiles(depth, threads, allocator) {}
};

}  // namespace
}  // namespace fathom::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

#if FATHOM_KERNELS_HAVE_GEMM_MICROKERNEL

Bf16Matrix matrix_of(const View<const bf16, 2>& w) { return {w.data(), w.extent(1), w.stride(0)}; }
Int8Matrix matrix_of(const Int8Weights& w) {
  return {w.values.data(), w.scales.data(), w.values.extent(1), w.values.stride(0), w.scales.stride(0)};
}

template <class Matrix>
void multiply(View<const float, 2> x, const Matrix& matrix, View<const bf16, 1> bias, Output output,
              View<float, 2> y, const Execution& on) {
  const int64_t count = x.extent(0), depth = x.extent(1), outputs = y.extent(1);
  ScratchAllocator allocator(on.scratch);
  const LinearScratch scratch(count, depth, on.threads->threads(), allocator);

  on.threads->parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* permuted = scratch.permuted + t * round_up(depth, kRowPadding);
      permute_row<Matrix>(x.data() + t * x.stride(0), depth, permuted);
      scratch.rows[t] = permuted;
    }
  });

  PanelScheduler queue(1, round_up(outputs, kPanel) / kPanel, on.threads->threads());
  on.threads->run_shares([&](int worker) {
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

void linear(View<const float, 2> x, const DenseMatrix& w, View<const bf16, 1> bias, Output output,
            View<float, 2> y, const Execution& on) {
  std::visit([&](const auto& weights) { multiply(x, matrix_of(weights), bias, output, y, on); }, w);
}

#else

void linear(View<const float, 2> x, const DenseMatrix& w, View<const bf16, 1> bias, Output output,
            View<float, 2> y, const Execution& on) {
  linear_reference(x, w, bias, output, y, on);
}

#endif

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::kernels {

HWY_EXPORT(linear);

void linear_cpu(View<const float, 2> x, const DenseMatrix& w, View<const bf16, 1> bias, Output output,
                View<float, 2> y, const Execution& on) {
  const int64_t rows = x.extent(0), depth = x.extent(1), outputs = rows_of(w);
  FATHOM_EXPECT(columns_of(w) == depth && y.extent(0) == rows && y.extent(1) == outputs,
                fmt::format("x [{}, {}] and w [{}, {}] make no y [{}, {}]", rows, depth, outputs,
                            columns_of(w), y.extent(0), y.extent(1)));
  FATHOM_EXPECT(bias.data() == nullptr || bias.extent(0) == outputs,
                fmt::format("a bias of {} for {} outputs", bias.extent(0), outputs));
  FATHOM_EXPECT(
      (depth <= 1 || x.stride(1) == 1) && (outputs <= 1 || y.stride(1) == 1) &&
          std::visit([](const auto& weights) { return well_formed(weights); }, w),
      "rows of x, w and y must be contiguous, and w in int8 must have a scale for each group of 32");
  if (rows == 0 || outputs == 0) return;
  HWY_DYNAMIC_DISPATCH(linear)(x, w, bias, output, y, on);
}

int64_t linear_cpu_scratch_bytes(int64_t rows, int64_t depth, int threads) {
  ScratchAllocator counter;
  LinearScratch(rows, depth, threads, counter);
  return counter.used();
}

}  // namespace fathom::kernels
#endif
