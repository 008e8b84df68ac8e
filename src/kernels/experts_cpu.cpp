// u = W1 x + b1;  a = g sigmoid(alpha g) (l + 1);  y += weight (W2 a + b2)      of each expert of each token
//
// bytes   1.5 H I 17/16 of each expert that has a token, in MXFP4
// flops   6 H I for each token and expert of it
// limit   few tokens: memory bandwidth, if 4-bit numbers can be unpacked that fast; many: the FMA units
// idea    tokens are grouped by expert, so that each weight is read once. Few of them: the values of weights
// are
//         looked up in registers and multiplied there with rows that were put in the same order. Many: 24
//         outputs become bf16 once, and from there on it is the product of linear_cpu.cpp. Threads share the
//         outputs of all experts, first of W1, then of W2; a token then adds its experts in their order,
//         whoever made them
#include "kernels/experts.h"

#include <fmt/format.h>

#include "core/expect.h"
#include "core/fp4_blocks.h"
#include "core/thread_pool.h"
#include "kernels/dot_scratch.h"
#include "kernels/panel_queue.h"

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither: Highway would add code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/experts_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h: compiled for each instruction set.
#include "hwy/contrib/math/math-inl.h"
#include "kernels/dot_tile.h"

#ifndef FATHOM_KERNELS_EXPERTS_CPU
#define FATHOM_KERNELS_EXPERTS_CPU
namespace fathom::kernels {
namespace {

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

// A slot is a token and one of its experts, t top_k + k. Grouped, they lie by expert, and tokens in order.
struct ExpertsScratch {
  int32_t* slots;           // [T top_k], grouped
  int32_t* first;           // [E + 1], where an expert's slots begin
  int32_t* busy;            // [E], the experts that have any
  float* x;                 // [T, H padded], prepared rows
  const float** x_rows;     // [T top_k], grouped
  float* activations;       // [T top_k, I padded], grouped, prepared rows
  float** activation_rows;  // [T top_k], grouped
  float* out;               // [T top_k, H], by slot: W2 a + b2
  TileScratches tiles;

  ExpertsScratch(int64_t rows, int64_t top_k, int64_t num_experts, int64_t hidden, int64_t intermediate,
                 int threads, ScratchCutter& cutter)
      : slots(cutter.cut<int32_t>(rows * top_k)),
        first(cutter.cut<int32_t>(num_experts + 1)),
        busy(cutter.cut<int32_t>(num_experts)),
        x(cutter.cut<float>(rows * round_up(hidden, kOrder))),
        x_rows(cutter.cut<const float*>(rows * top_k)),
        activations(cutter.cut<float>(rows * top_k * round_up(intermediate, kOrder))),
        activation_rows(cutter.cut<float*>(rows * top_k)),
        out(cutter.cut<float>(rows * top_k * hidden)),
        tiles(std::max(hidden, intermediate), threads, cutter) {}
};

// Counting sort. Returns how many experts are busy.
int64_t group_by_expert(const ExpertsTask& task, const ExpertsScratch& s) {
  const int64_t num_experts = task.num_experts();
  std::fill_n(s.first, num_experts + 1, 0);
  for (int64_t t = 0; t < task.tokens(); ++t)
    for (int64_t k = 0; k < task.top_k(); ++k) ++s.first[task.experts(t, k) + 1];
  int64_t busy = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (s.first[e + 1] > 0) s.busy[busy++] = static_cast<int32_t>(e);
    s.first[e + 1] += s.first[e];
  }
  for (int64_t t = 0; t < task.tokens(); ++t)
    for (int64_t k = 0; k < task.top_k(); ++k)
      s.slots[s.first[task.experts(t, k)]++] = static_cast<int32_t>(t * task.top_k() + k);
  std::copy_backward(s.first, s.first + num_experts,
                     s.first + num_experts + 1);  // each stands at the next's begin
  s.first[0] = 0;
  return busy;
}

}  // namespace
}  // namespace fathom::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

#if FATHOM_KERNELS_HAVE_TILE

Bf16Matrix matrix_of(const View<const bf16, 3>& w, int64_t e) {
  return {w.data() + e * w.stride(0), w.extent(2), w.stride(1)};
}
Mxfp4Matrix matrix_of(const Mxfp4Matrices& w, int64_t e) {
  const int64_t groups = w.scales.extent(2);
  return {w.blocks.data() + e * w.blocks.stride(0), w.scales.data() + e * w.scales.stride(0),
          groups * kMxfp4Block, groups * kMxfp4Block / 2, groups};
}
template <class Matrices>
using MatrixOf = decltype(matrix_of(Matrices(), 0));

// Calls take(expert, first slot, slots, first output, last, sums) for the products of the rows of each busy
// expert with all its outputs, on all threads.
template <class Matrices, class Take>
void expert_products(const ExpertsTask& task, const ExpertsScratch& s, int64_t busy, const Matrices& matrices,
                     int64_t outputs, const float* const* rows, const Take& take) {
  PanelQueue queue(busy, round_up(outputs, kPanel) / kPanel, task.threads.threads());
  task.threads.run([&](int worker) {
    const TileScratch tile = s.tiles.of(worker);
    for (auto run = queue.take(); run.begin < run.end; run = queue.take()) {
      const int64_t e = s.busy[run.matrix], first = s.first[e], count = s.first[e + 1] - first;
      dot_products(matrix_of(matrices, e), rows + first, count, run.begin * kPanel,
                   std::min(run.end * kPanel, outputs), tile,
                   [&](int64_t row, int64_t some, int64_t n0, int64_t n1, const float* sums) {
                     take(e, first + row, some, n0, n1, sums);
                   });
    }
  });
}

// a(i) of units u(2 i), u(2 i + 1), i in [0, count); reads and writes whole vectors. A NaN stays one: Min and
// Max return their second operand then.
HWY_INLINE void swiglu(const float* u, int64_t count, float limit, float alpha, float* a) {
  const Lanes d;
  const Floats most = hn::Set(d, limit), least = hn::Set(d, -limit), one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < count; i += kLanes) {
    Floats gate, up;
    hn::LoadInterleaved2(d, u + 2 * i, gate, up);
    gate               = hn::Min(most, gate);
    up                 = hn::Max(least, hn::Min(most, up));
    const Floats decay = hn::Exp(d, hn::Mul(hn::Set(d, -alpha), gate));
    hn::Store(hn::Mul(hn::Div(gate, hn::Add(one, decay)), hn::Add(up, one)), d, a + i);
  }
}

// Activations of all slots, as prepared rows for a Matrix2.
template <class Matrix2, class Matrices1>
void activate(const ExpertsTask& task, const ExpertsScratch& s, int64_t busy, const Matrices1& mlp1) {
  static constexpr PreparedOrder<Matrix2> kOrderOfStep;
  constexpr int64_t kStep    = Matrix2::kStep;
  const ExpertWeights& w     = task.w;
  const int64_t intermediate = task.intermediate(), top_k = task.top_k();

  task.threads.parallel_for(task.tokens(), 1, [&](int64_t begin, int64_t end) {
    const int64_t x_stride = round_up(task.hidden(), kOrder), a_stride = round_up(intermediate, kOrder);
    for (int64_t t = begin; t < end; ++t)
      prepare_row<MatrixOf<Matrices1>>(task.x.data() + t * task.x.stride(0), task.hidden(),
                                       s.x + t * x_stride);
    for (int64_t i = begin * top_k; i < end * top_k; ++i) {
      s.x_rows[i]          = s.x + s.slots[i] / top_k * x_stride;
      s.activation_rows[i] = s.activations + i * a_stride;
      const int64_t whole  = intermediate / kStep * kStep;  // nobody writes what lies behind the last element
      std::fill_n(s.activation_rows[i] + whole, round_up(intermediate - whole, kStep), 0.0f);
    }
  });

  expert_products(task, s, busy, mlp1, 2 * intermediate, s.x_rows,
                  [&](int64_t e, int64_t first, int64_t count, int64_t n0, int64_t n1, const float* sums) {
                    HWY_ALIGN float u[2 * round_up(kPanel / 2, kLanes)] = {};
                    HWY_ALIGN float a[round_up(kPanel / 2, kLanes)];
                    for (int64_t r = 0; r < count; ++r) {
                      for (int64_t n = n0; n < n1; ++n)
                        u[n - n0] = sums[r * kPanel + n - n0] + static_cast<float>(w.mlp1_bias(e, n));
                      swiglu(u, (n1 - n0) / 2, w.limit, w.alpha, a);
                      float* row = s.activation_rows[first + r];
                      for (int64_t i = n0 / 2; i < n1 / 2; ++i)
                        row[i / kStep * kStep + kOrderOfStep.place[i % kStep]] = a[i - n0 / 2];
                    }
                  });
}

template <class Matrices2>
void project(const ExpertsTask& task, const ExpertsScratch& s, int64_t busy, const Matrices2& mlp2) {
  const int64_t hidden = task.hidden();
  expert_products(task, s, busy, mlp2, hidden, s.activation_rows,
                  [&](int64_t e, int64_t first, int64_t count, int64_t n0, int64_t n1, const float* sums) {
                    for (int64_t r = 0; r < count; ++r) {
                      float* out = s.out + s.slots[first + r] * hidden;
                      for (int64_t n = n0; n < n1; ++n)
                        out[n] = sums[r * kPanel + n - n0] + static_cast<float>(task.w.mlp2_bias(e, n));
                    }
                  });
}

void combine(const ExpertsTask& task, const ExpertsScratch& s) {
  const int64_t hidden = task.hidden(), top_k = task.top_k();
  task.threads.parallel_for(task.tokens(), 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    for (int64_t t = begin; t < end; ++t) {
      float* y         = task.y.data() + t * task.y.stride(0);
      const float* out = s.out + t * top_k * hidden;
      int64_t h        = 0;
      for (; h + kLanes <= hidden; h += kLanes) {
        Floats sum = hn::LoadU(d, y + h);
        for (int64_t k = 0; k < top_k; ++k)
          sum = hn::MulAdd(hn::Set(d, task.weights(t, k)), hn::LoadU(d, out + k * hidden + h), sum);
        hn::StoreU(sum, d, y + h);
      }
      for (; h < hidden; ++h)
        for (int64_t k = 0; k < top_k; ++k) y[h] += task.weights(t, k) * out[k * hidden + h];
    }
  });
}

void experts(const ExpertsTask& task, View<std::byte, 1> memory) {
  ScratchCutter cutter(memory);
  const ExpertsScratch s(task.tokens(), task.top_k(), task.num_experts(), task.hidden(), task.intermediate(),
                         task.threads.threads(), cutter);
  const int64_t busy = group_by_expert(task, s);
  std::visit(
      [&](const auto& mlp1, const auto& mlp2) {
        activate<MatrixOf<std::decay_t<decltype(mlp2)>>>(task, s, busy, mlp1);
        project(task, s, busy, mlp2);
      },
      task.w.mlp1, task.w.mlp2);
  combine(task, s);
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
namespace {

HWY_EXPORT(experts);

void expect_matrices(const char* name, const ExpertMatrices& matrices, int64_t num_experts, int64_t outputs,
                     int64_t inputs) {
  bool fits;
  if (const auto* packed = std::get_if<Mxfp4Matrices>(&matrices)) {
    const auto& [blocks, scales] = *packed;
    const int64_t groups         = inputs / kMxfp4Block;
    fits = inputs % kMxfp4Block == 0 && blocks.extent(0) == num_experts && blocks.extent(1) == outputs &&
           blocks.extent(2) == groups && blocks.extent(3) == kMxfp4Block / 2 && blocks.contiguous() &&
           scales.extent(0) == num_experts && scales.extent(1) == outputs && scales.extent(2) == groups &&
           scales.contiguous();
  } else {
    const auto& plain = std::get<View<const bf16, 3>>(matrices);
    fits = plain.extent(0) == num_experts && plain.extent(1) == outputs && plain.extent(2) == inputs &&
           (inputs <= 1 || plain.stride(2) == 1);
  }
  FATHOM_EXPECT(fits,
                fmt::format("{} must be {} matrices [{}, {}] of contiguous rows, in MXFP4 all contiguous and "
                            "of whole blocks of {}",
                            name, num_experts, outputs, inputs, kMxfp4Block));
}

}  // namespace

void experts_cpu(View<const float, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                 const ExpertWeights& w, View<float, 2> y, const Execution& on) {
  const ExpertsTask task{x, experts, weights, w, y, *on.threads};
  const int64_t tokens = task.tokens(), hidden = task.hidden(), num_experts = task.num_experts();
  FATHOM_EXPECT(y.extent(0) == tokens && y.extent(1) == hidden,
                fmt::format("x [{}, {}] but y [{}, {}]", tokens, hidden, y.extent(0), y.extent(1)));
  FATHOM_EXPECT(
      experts.extent(0) == tokens && weights.extent(0) == tokens && weights.extent(1) == task.top_k(),
      "experts and weights must be [T, top_k]");
  FATHOM_EXPECT(hidden <= 1 || (x.stride(1) == 1 && y.stride(1) == 1), "rows of x and y must be contiguous");
  FATHOM_EXPECT(w.mlp1_bias.extent(1) % 2 == 0 && w.mlp2_bias.extent(0) == num_experts &&
                    w.mlp2_bias.extent(1) == hidden,
                "mlp1_bias must be [E, 2I], mlp2_bias [E, H]");
  expect_matrices("mlp1", w.mlp1, num_experts, 2 * task.intermediate(), hidden);
  expect_matrices("mlp2", w.mlp2, num_experts, hidden, task.intermediate());
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 0; k < task.top_k(); ++k)
      FATHOM_EXPECT(experts(t, k) >= 0 && experts(t, k) < num_experts,
                    fmt::format("token {} asks for expert {} of {}", t, experts(t, k), num_experts));
  if (tokens == 0) return;
  HWY_DYNAMIC_DISPATCH(experts)(task, on.scratch);
}

int64_t experts_cpu_scratch_bytes(int64_t rows, int64_t top_k, int64_t num_experts, int64_t hidden,
                                  int64_t intermediate, int threads) {
  ScratchCutter counter;
  ExpertsScratch(rows, top_k, num_experts, hidden, intermediate, threads, counter);
  return counter.used();
}

}  // namespace fathom::kernels
#endif
