// u = W1 x + b1;  a = g sigmoid(alpha g) (l + 1);  y += weight (W2 a + b2)      for each expert of each token
//
// bytes   1.5 H I 17/16 of each expert that has a token, in MXFP4
// flops   6 H I for each token and expert of it
// limit   few tokens: memory bandwidth, if 4-bit numbers can be dequantised that fast; many: the FMA units
// idea    Tokens are grouped by expert, so that each weight is read once. Few tokens: weights are dequantised
// by
//         table look-ups in registers and multiplied there with rows that were permuted to the same order.
//         Many tokens: a panel of 24 outputs is dequantised to bf16 once, and then multiplied as in
//         linear_cpu.cpp. Threads share the outputs of all experts, first of W1, then of W2. A token's
//         experts are then added in the token's own order, whichever threads computed them
#include "kernels/moe/experts.h"

#include "core/thread_pool.h"
#include "kernels/gemm/gemm_scratch_cpu.h"
#include "kernels/gemm/panel_scheduler_cpu.h"

#define HWY_DISABLE_PCLMUL_AES  // not part of x86-64-v3; else Highway adds code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/experts_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, because it is compiled for each instruction set.
#include "kernels/gemm/gemm_microkernel_cpu.h"
#include "kernels/moe/expert_layer_cpu.h"

#ifndef FATHOM_KERNELS_EXPERTS_CPU
#define FATHOM_KERNELS_EXPERTS_CPU
namespace fathom::kernels {
namespace {

struct ExpertsScratch {
  SortedRows sorted;
  float* x;                 // [T, H padded], permuted rows
  const float** x_rows;     // [T top_k], sorted
  float* activations;       // [T top_k, I padded], sorted, permuted rows
  float** activation_rows;  // [T top_k], sorted
  float* out;               // [T top_k, H], by expert row: W2 a + b2
  TileScratches tiles;

  ExpertsScratch(int64_t rows, int64_t top_k, int64_t num_experts, int64_t hidden, int64_t intermediate,
                 int threads, ScratchAllocator& allocator)
      : sorted(rows * top_k, num_experts, allocator),
        x(allocator.take<float>(rows * round_up(hidden, kRowPadding))),
        x_rows(allocator.take<const float*>(rows * top_k)),
        activations(allocator.take<float>(rows * top_k * round_up(intermediate, kRowPadding))),
        activation_rows(allocator.take<float*>(rows * top_k)),
        out(allocator.take<float>(rows * top_k * hidden)),
        tiles(std::max(hidden, intermediate), threads, allocator) {}
};

}  // namespace
}  // namespace fathom::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

#if FATHOM_KERNELS_HAVE_GEMM_MICROKERNEL

Bf16Matrix matrix_of(const View<const bf16, 3>& w, int64_t e) {
  return {w.data() + e * w.stride(0), w.extent(2), w.stride(1)};
}
Mxfp4Matrix matrix_of(const Mxfp4Matrices& w, int64_t e) {
  return {w.blocks.data() + e * w.blocks.stride(0), w.scales.data() + e * w.scales.stride(0),
          w.scales.extent(2) * kMxfp4Block, w.blocks.stride(1), w.scales.stride(1)};
}
template <class Matrices>
using MatrixOf = decltype(matrix_of(Matrices(), 0));

// The products of each active expert's rows with all its outputs, on all threads: calls take(expert, first
// sorted row, rows, first output, end output, sums).
template <class Matrices, class Take>
void expert_products(const ExpertsTask& task, const ExpertsScratch& s, int64_t active,
                     const Matrices& matrices, int64_t outputs, const float* const* rows, const Take& take) {
  PanelScheduler queue(active, round_up(outputs, kPanel) / kPanel, task.threads.threads());
  task.threads.run_shares([&](int worker) {
    const TileScratch tile = s.tiles.of(worker);
    for (auto run = queue.take(); run.begin < run.end; run = queue.take()) {
      const int64_t e = s.sorted.active[run.matrix], first = s.sorted.first[e],
                    count = s.sorted.first[e + 1] - first;
      dot_products(matrix_of(matrices, e), rows + first, count, run.begin * kPanel,
                   std::min(run.end * kPanel, outputs), tile,
                   [&](int64_t row, int64_t some, int64_t n0, int64_t n1, const float* sums) {
                     take(e, first + row, some, n0, n1, sums);
                   });
    }
  });
}

// The first layer: activations of all expert rows, permuted for a Matrix2.
template <class Matrix2, class Matrices1>
void up_projection(const ExpertsTask& task, const ExpertsScratch& s, int64_t active, const Matrices1& mlp1) {
  static constexpr RowPermutation<Matrix2> kPermutation;
  constexpr int64_t kStep    = Matrix2::kStep;
  const ExpertWeights& w     = task.w;
  const int64_t intermediate = task.intermediate(), top_k = task.top_k();

  task.threads.parallel_for(task.tokens(), 1, [&](int64_t begin, int64_t end) {
    const int64_t x_stride = round_up(task.hidden(), kRowPadding),
                  a_stride = round_up(intermediate, kRowPadding);
    for (int64_t t = begin; t < end; ++t)
      permute_row<MatrixOf<Matrices1>>(task.x.data() + t * task.x.stride(0), task.hidden(),
                                       s.x + t * x_stride);
    for (int64_t i = begin * top_k; i < end * top_k; ++i) {
      s.x_rows[i]          = s.x + s.sorted.rows[i] / top_k * x_stride;
      s.activation_rows[i] = s.activations + i * a_stride;
      const int64_t whole  = intermediate / kStep * kStep;  // padding, which the products do not write
      std::fill_n(s.activation_rows[i] + whole, round_up(intermediate - whole, kStep), 0.0f);
    }
  });

  expert_products(task, s, active, mlp1, 2 * intermediate, s.x_rows,
                  [&](int64_t e, int64_t first, int64_t count, int64_t n0, int64_t n1, const float* sums) {
                    HWY_ALIGN float u[2 * round_up(kPanel / 2, kLanes)] = {};
                    HWY_ALIGN float a[round_up(kPanel / 2, kLanes)];
                    for (int64_t r = 0; r < count; ++r) {
                      for (int64_t n = n0; n < n1; ++n)
                        u[n - n0] = sums[r * kPanel + n - n0] + static_cast<float>(w.mlp1_bias(e, n));
                      swiglu(Lanes(), u, (n1 - n0) / 2, w.limit, w.alpha, a);
                      float* row = s.activation_rows[first + r];
                      for (int64_t i = n0 / 2; i < n1 / 2; ++i)
                        row[i / kStep * kStep + kPermutation.index[i % kStep]] = a[i - n0 / 2];
                    }
                  });
}

template <class Matrices2>
void down_projection(const ExpertsTask& task, const ExpertsScratch& s, int64_t active,
                     const Matrices2& mlp2) {
  const int64_t hidden = task.hidden();
  expert_products(task, s, active, mlp2, hidden, s.activation_rows,
                  [&](int64_t e, int64_t first, int64_t count, int64_t n0, int64_t n1, const float* sums) {
                    for (int64_t r = 0; r < count; ++r) {
                      float* out = s.out + s.sorted.rows[first + r] * hidden;
                      for (int64_t n = n0; n < n1; ++n)
                        out[n] = sums[r * kPanel + n - n0] + static_cast<float>(task.w.mlp2_bias(e, n));
                    }
                  });
}

void experts(const ExpertsTask& task, View<std::byte, 1> memory) {
  ScratchAllocator allocator(memory);
  const ExpertsScratch s(task.tokens(), task.top_k(), task.num_experts(), task.hidden(), task.intermediate(),
                         task.threads.threads(), allocator);
  const int64_t active = group_by_expert(task, s.sorted);
  std::visit(
      [&](const auto& mlp1, const auto& mlp2) {
        up_projection<MatrixOf<std::decay_t<decltype(mlp2)>>>(task, s, active, mlp1);
        down_projection(task, s, active, mlp2);
      },
      task.w.mlp1, task.w.mlp2);
  combine(Lanes(), task, s.out);
}

#else

void experts(const ExpertsTask& task, View<std::byte, 1>) {
  experts_reference(task.x, task.experts, task.weights, task.w, task.y, {});
}

#endif

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::kernels {

HWY_EXPORT(experts);

void experts_cpu(View<const float, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                 const ExpertWeights& w, View<float, 2> y, const Execution& on) {
  const ExpertsTask task{x, experts, weights, w, y, *on.threads};
  expect_experts(task);
  if (task.tokens() == 0) return;
  HWY_DYNAMIC_DISPATCH(experts)(task, on.scratch);
}

int64_t experts_cpu_scratch_bytes(int64_t rows, int64_t top_k, int64_t num_experts, int64_t hidden,
                                  int64_t intermediate, int threads) {
  ScratchAllocator counter;
  ExpertsScratch(rows, top_k, num_experts, hidden, intermediate, threads, counter);
  return counter.used();
}

}  // namespace fathom::kernels
#endif
