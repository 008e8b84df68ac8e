// What the experts on a CPU have in common, whatever the format of their weights and activations: the task,
// its contract, rows grouped by expert, SwiGLU, and the sum over a token's experts. The lower half is
// included once for each instruction set (hwy/foreach_target.h), hence the unusual guard.
#ifndef FATHOM_KERNELS_EXPERT_LAYER_CPU
#define FATHOM_KERNELS_EXPERT_LAYER_CPU

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/expect.h"
#include "core/mxfp4_nvfp4.h"
#include "core/thread_pool.h"
#include "kernels/gemm/gemm_scratch_cpu.h"
#include "kernels/moe/expert_weights.h"

namespace fathom::kernels {

struct ExpertsTask {
  View<const float, 2> x;
  View<const int32_t, 2> experts;
  View<const float, 2> weights;
  const ExpertWeights& w;
  View<float, 2> y;
  ThreadPool& threads;

  int64_t tokens() const { return x.extent(0); }
  int64_t hidden() const { return x.extent(1); }
  int64_t top_k() const { return experts.extent(1); }
  int64_t num_experts() const { return w.mlp1_bias.extent(0); }
  int64_t intermediate() const { return w.mlp1_bias.extent(1) / 2; }
};

inline void expect_matrices(const char* name, const ExpertMatrices& matrices, int64_t num_experts,
                            int64_t outputs, int64_t inputs) {
  bool fits;
  if (const auto* packed = std::get_if<Mxfp4Matrices>(&matrices)) {
    const auto& [blocks, scales] = *packed;
    const int64_t groups         = inputs / kMxfp4Block;
    fits = inputs % kMxfp4Block == 0 && blocks.extent(0) == num_experts && blocks.extent(1) == outputs &&
           blocks.extent(2) == groups && blocks.extent(3) == kMxfp4Block / 2 &&
           scales.extent(0) == num_experts && scales.extent(1) == outputs && scales.extent(2) == groups &&
           blocks.stride(3) == 1 && blocks.stride(2) == kMxfp4Block / 2 && scales.stride(2) == 1 &&
           blocks.stride(1) == scales.stride(1) * (kMxfp4Block / 2);
  } else {
    const auto& plain = std::get<View<const bf16, 3>>(matrices);
    fits = plain.extent(0) == num_experts && plain.extent(1) == outputs && plain.extent(2) == inputs &&
           (inputs <= 1 || plain.stride(2) == 1);
  }
  FATHOM_EXPECT(fits,
                fmt::format("{} must be {} matrices [{}, {}] of contiguous rows, in MXFP4 of whole blocks of "
                            "{} and with as many scales as blocks between rows",
                            name, num_experts, outputs, inputs, kMxfp4Block));
}

inline void expect_experts(const ExpertsTask& task) {
  const int64_t tokens = task.tokens(), hidden = task.hidden(), num_experts = task.num_experts();
  FATHOM_EXPECT(task.y.extent(0) == tokens && task.y.extent(1) == hidden,
                fmt::format("x [{}, {}] but y [{}, {}]", tokens, hidden, task.y.extent(0), task.y.extent(1)));
  FATHOM_EXPECT(task.experts.extent(0) == tokens && task.weights.extent(0) == tokens &&
                    task.weights.extent(1) == task.top_k(),
                "experts and weights must be [T, top_k]");
  FATHOM_EXPECT(hidden <= 1 || (task.x.stride(1) == 1 && task.y.stride(1) == 1),
                "rows of x and y must be contiguous");
  FATHOM_EXPECT(task.w.mlp1_bias.extent(1) % 2 == 0 && task.w.mlp2_bias.extent(0) == num_experts &&
                    task.w.mlp2_bias.extent(1) == hidden,
                "mlp1_bias must be [E, 2I], mlp2_bias [E, H]");
  expect_matrices("mlp1", task.w.mlp1, num_experts, 2 * task.intermediate(), hidden);
  expect_matrices("mlp2", task.w.mlp2, num_experts, hidden, task.intermediate());
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 0; k < task.top_k(); ++k)
      FATHOM_EXPECT(task.experts(t, k) >= kNoExpert && task.experts(t, k) < num_experts,
                    fmt::format("token {} asks for expert {} of {}", t, task.experts(t, k), num_experts));
}

// An expert row is a token and one of its experts, r = t top_k + k. "Sorted": by expert, then by token.
struct SortedRows {
  int32_t* rows;    // [T top_k], sorted; beyond the last expert's, zeros
  int32_t* first;   // [E + 1], offsets of the experts' rows
  int32_t* active;  // [E], the experts that have a row

  SortedRows(int64_t rows_, int64_t num_experts, ScratchAllocator& allocator)
      : rows(allocator.take<int32_t>(rows_)),
        first(allocator.take<int32_t>(num_experts + 1)),
        active(allocator.take<int32_t>(num_experts)) {}
};

// Counting sort. Returns the number of active experts.
inline int64_t group_by_expert(const ExpertsTask& task, const SortedRows& s) {
  const int64_t num_experts = task.num_experts();
  std::fill_n(s.first, num_experts + 1, 0);
  for (int64_t t = 0; t < task.tokens(); ++t)
    for (int64_t k = 0; k < task.top_k(); ++k) ++s.first[task.experts(t, k) + 1];
  s.first[0]     = 0;  // had counted the rows without an expert
  int64_t active = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (s.first[e + 1] > 0) s.active[active++] = static_cast<int32_t>(e);
    s.first[e + 1] += s.first[e];
  }
  for (int64_t t = 0; t < task.tokens(); ++t)
    for (int64_t k = 0; k < task.top_k(); ++k)
      if (task.experts(t, k) != kNoExpert)
        s.rows[s.first[task.experts(t, k)]++] = static_cast<int32_t>(t * task.top_k() + k);
  std::copy_backward(s.first, s.first + num_experts,
                     s.first + num_experts + 1);  // each offset had advanced to the next expert's
  s.first[0] = 0;
  std::fill(s.rows + s.first[num_experts], s.rows + task.tokens() * task.top_k(), 0);
  return active;
}

}  // namespace fathom::kernels
#endif  // FATHOM_KERNELS_EXPERT_LAYER_CPU

#if defined(FATHOM_KERNELS_EXPERT_LAYER_CPU_TARGET) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_KERNELS_EXPERT_LAYER_CPU_TARGET
#undef FATHOM_KERNELS_EXPERT_LAYER_CPU_TARGET
#else
#define FATHOM_KERNELS_EXPERT_LAYER_CPU_TARGET
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Largest argument of hn::Exp, which beyond it counts its exponent past the end of a float's. e^104 is
// infinite in fp32 as e^89 is.
inline constexpr float kMaxExponent = 104;

// SwiGLU: a(i) from the gate u(2 i) and the linear part u(2 i + 1), i in [0, count). Reads and writes whole
// vectors. NaN stays NaN, because Min and Max then return their second operand.
template <class D>
HWY_INLINE void swiglu(D d, const float* u, int64_t count, float limit, float alpha, float* a) {
  using V       = hn::Vec<D>;
  const V upper = hn::Set(d, limit), lower = hn::Set(d, -limit), one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::MaxLanes(d))) {
    V gate, up;
    hn::LoadInterleaved2(d, u + 2 * i, gate, up);
    gate          = hn::Min(upper, gate);
    up            = hn::Max(lower, hn::Min(upper, up));
    const V decay = hn::Exp(d, hn::Min(hn::Set(d, kMaxExponent), hn::Mul(hn::Set(d, -alpha), gate)));
    hn::Store(hn::Mul(hn::Div(gate, hn::Add(one, decay)), hn::Add(up, one)), d, a + i);
  }
}

// y += the weighted sum of each token's experts, in the token's own order. out [T top_k, H], by expert row;
// rows without an expert become zeros.
template <class D>
void combine(D d, const ExpertsTask& task, float* out_rows) {
  const int64_t hidden = task.hidden(), top_k = task.top_k(), lanes = static_cast<int64_t>(hn::MaxLanes(d));
  task.threads.parallel_for(task.tokens(), 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t t = begin; t < end; ++t) {
      float* y   = task.y.data() + t * task.y.stride(0);
      float* out = out_rows + t * top_k * hidden;
      for (int64_t k = 0; k < top_k; ++k)
        if (task.experts(t, k) == kNoExpert) std::fill_n(out + k * hidden, hidden, 0.0f);
      int64_t h = 0;
      for (; h + lanes <= hidden; h += lanes) {
        auto sum = hn::LoadU(d, y + h);
        for (int64_t k = 0; k < top_k; ++k)
          sum = hn::MulAdd(hn::Set(d, task.weights(t, k)), hn::LoadU(d, out + k * hidden + h), sum);
        hn::StoreU(sum, d, y + h);
      }
      for (; h < hidden; ++h)
        for (int64_t k = 0; k < top_k; ++k) y[h] += task.weights(t, k) * out[k * hidden + h];
    }
  });
}

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // FATHOM_KERNELS_EXPERT_LAYER_CPU_TARGET
