// out(r, c) = op(a(r, c), b(r, c)), or op over c of a(r, c)       a block of 4 KiB, fp32
//
// limit   L1: two loads and a store for each vector
// idea    a tape's interpreter costs a call for 1024 numbers; between ops they lie in L1, not in registers
#include "compile/block_kernels_cpu.h"

#include <algorithm>
#include <limits>

#define HWY_DISABLE_PCLMUL_AES  // not part of x86-64-v3; else Highway adds code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compile/block_kernels_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, because they are compiled for each instruction set.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::compile::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using V = hn::Vec<F>;
using U = hn::Repartition<uint32_t, F>;

// To the nearest bf16, ties to even; a NaN stays one.
HWY_INLINE V rounded(F f, V v) {
  const U u;
  const auto bits = hn::BitCast(u, v);
  const auto odd  = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
  const auto near = hn::Add(hn::Add(bits, hn::Set(u, 0x7fff)), odd);
  const auto kept =
      hn::And(hn::IfThenElse(hn::RebindMask(u, hn::IsNaN(v)), hn::Or(bits, hn::Set(u, 0x400000)), near),
              hn::Set(u, 0xffff0000u));
  return hn::BitCast(f, kept);
}

// A function of Highway's that makes a number of NaN, kept from it.
HWY_INLINE V unless_nan(V x, V result) { return hn::IfThenElse(hn::IsNaN(x), x, result); }

// Beyond 104 hn::Exp counts its exponent past the end of a float's; e^104 is infinite in fp32 as e^89 is.
HWY_INLINE V exponential(F f, V x) { return unless_nan(x, hn::Exp(f, hn::Min(hn::Set(f, 104.0f), x))); }

struct Copy {
  static HWY_INLINE V of(F, V a, V) { return a; }
};
struct Neg {
  static HWY_INLINE V of(F, V a, V) { return hn::Neg(a); }
};
struct Abs {
  static HWY_INLINE V of(F, V a, V) { return hn::Abs(a); }
};
struct Exp {
  static HWY_INLINE V of(F f, V a, V) { return exponential(f, a); }
};
struct Sqrt {
  static HWY_INLINE V of(F, V a, V) { return hn::Sqrt(a); }
};
struct Rsqrt {
  static HWY_INLINE V of(F f, V a, V) { return hn::Div(hn::Set(f, 1.0f), hn::Sqrt(a)); }
};
struct Sigmoid {
  static HWY_INLINE V of(F f, V a, V) {
    const V one = hn::Set(f, 1.0f);
    return hn::Div(one, hn::Add(one, exponential(f, hn::Neg(a))));
  }
};
struct Tanh {
  // Beyond 10 it is 1 in fp32.
  static HWY_INLINE V of(F f, V a, V) {
    return unless_nan(a, hn::Tanh(f, hn::Min(hn::Set(f, 10.0f), hn::Max(hn::Set(f, -10.0f), a))));
  }
};
struct Add {
  static HWY_INLINE V of(F, V a, V b) { return hn::Add(a, b); }
};
struct Sub {
  static HWY_INLINE V of(F, V a, V b) { return hn::Sub(a, b); }
};
struct Mul {
  static HWY_INLINE V of(F, V a, V b) { return hn::Mul(a, b); }
};
struct Div {
  static HWY_INLINE V of(F, V a, V b) { return hn::Div(a, b); }
};
struct Min {
  static HWY_INLINE V of(F, V a, V b) { return hn::Min(a, b); }
};
struct Max {
  static HWY_INLINE V of(F, V a, V b) { return hn::Max(a, b); }
};
struct Round {
  static HWY_INLINE V of(F f, V a, V) { return rounded(f, a); }
};

enum class Shape { vectors, scalar_a, scalar_b };

template <class Function, bool kBinary, Shape kShape>
void map_row(const float* a, const float* b, float* out, int64_t n) {
  const F f;
  const auto lanes = static_cast<int64_t>(hn::Lanes(f));
  const V all_a    = hn::Set(f, kShape == Shape::scalar_a ? *a : 0),
          all_b    = hn::Set(f, kShape == Shape::scalar_b ? *b : 0);
  int64_t i        = 0;
  for (; i + lanes <= n; i += lanes) {
    const V va = kShape == Shape::scalar_a ? all_a : hn::LoadU(f, a + i);
    const V vb = !kBinary ? va : kShape == Shape::scalar_b ? all_b : hn::LoadU(f, b + i);
    hn::StoreU(Function::of(f, va, vb), f, out + i);
  }
  if (i == n) return;
  const auto rest = hn::FirstN(f, static_cast<size_t>(n - i));
  const V va      = kShape == Shape::scalar_a ? all_a : hn::MaskedLoad(rest, f, a + i);
  const V vb      = !kBinary ? va : kShape == Shape::scalar_b ? all_b : hn::MaskedLoad(rest, f, b + i);
  hn::BlendedStore(Function::of(f, va, vb), rest, f, out + i);
}

bool is_flat(const BlockOperand& operand, int64_t columns) {
  return !operand.scalar && operand.row_stride == columns;
}

template <class Function, bool kBinary>
void map(const BlockStep& s, int64_t rows, int64_t columns) {
  if (is_flat(s.a, columns) && s.out_row_stride == columns && (!kBinary || is_flat(s.b, columns))) {
    columns *= rows;
    rows = 1;
  }
  const F f;
  for (int64_t r = 0; r < rows; ++r) {
    const float *a = s.a.data + r * s.a.row_stride, *b = kBinary ? s.b.data + r * s.b.row_stride : a;
    float* out = s.out + r * s.out_row_stride;
    if (s.a.scalar && (!kBinary || s.b.scalar))
      std::fill_n(out, columns, hn::GetLane(Function::of(f, hn::Set(f, *a), hn::Set(f, *b))));
    else if (s.a.scalar)
      map_row<Function, kBinary, Shape::scalar_a>(a, b, out, columns);
    else if (kBinary && s.b.scalar)
      map_row<Function, kBinary, Shape::scalar_b>(a, b, out, columns);
    else
      map_row<Function, kBinary, Shape::vectors>(a, b, out, columns);
  }
}

struct Sum {
  static constexpr float kIdentity = 0;
  static HWY_INLINE V combine(V a, V b) { return hn::Add(a, b); }
  static HWY_INLINE V of_lanes(F f, V v) { return hn::SumOfLanes(f, v); }
  static HWY_INLINE V of_copies(F f, V v, int64_t n) { return hn::Mul(v, hn::Set(f, static_cast<float>(n))); }
};
struct Largest {
  static constexpr float kIdentity = -std::numeric_limits<float>::infinity();
  static HWY_INLINE V combine(V a, V b) { return hn::Max(a, b); }
  static HWY_INLINE V of_lanes(F f, V v) { return hn::MaxOfLanes(f, v); }
  static HWY_INLINE V of_copies(F, V v, int64_t) { return v; }
};

template <class R>
V reduced_row(const float* a, int64_t n) {
  const F f;
  const auto lanes = static_cast<int64_t>(hn::Lanes(f));
  V v0 = hn::Set(f, R::kIdentity), v1 = v0, v2 = v0, v3 = v0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    v0 = R::combine(v0, hn::LoadU(f, a + i));
    v1 = R::combine(v1, hn::LoadU(f, a + i + lanes));
    v2 = R::combine(v2, hn::LoadU(f, a + i + 2 * lanes));
    v3 = R::combine(v3, hn::LoadU(f, a + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) v0 = R::combine(v0, hn::LoadU(f, a + i));
  if (i < n) {
    const auto rest = hn::FirstN(f, static_cast<size_t>(n - i));
    v1 = R::combine(v1, hn::IfThenElse(rest, hn::MaskedLoad(rest, f, a + i), hn::Set(f, R::kIdentity)));
  }
  return R::of_lanes(f, R::combine(R::combine(v0, v1), R::combine(v2, v3)));
}

template <class R>
void reduce(const BlockStep& s, int64_t rows, int64_t columns) {
  const F f;
  for (int64_t r = 0; r < rows; ++r) {
    const float* a = s.a.data + r * s.a.row_stride;
    float& result  = s.out[r * s.out_row_stride];
    V all = s.a.scalar && columns > 0 ? R::of_copies(f, hn::Set(f, *a), columns) : reduced_row<R>(a, columns);
    if (s.accumulate) all = R::combine(hn::Set(f, result), all);
    // Once, when the row is done.
    result = hn::GetLane(s.to_bf16 ? rounded(f, all) : all);
  }
}

void apply(const BlockStep& s, int64_t rows, int64_t columns) {
  switch (s.op) {
    case Op::neg:
      return map<Neg, false>(s, rows, columns);
    case Op::abs:
      return map<Abs, false>(s, rows, columns);
    case Op::exp:
      return map<Exp, false>(s, rows, columns);
    case Op::sqrt:
      return map<Sqrt, false>(s, rows, columns);
    case Op::rsqrt:
      return map<Rsqrt, false>(s, rows, columns);
    case Op::sigmoid:
      return map<Sigmoid, false>(s, rows, columns);
    case Op::tanh:
      return map<Tanh, false>(s, rows, columns);
    case Op::add:
      return map<Add, true>(s, rows, columns);
    case Op::sub:
      return map<Sub, true>(s, rows, columns);
    case Op::mul:
      return map<Mul, true>(s, rows, columns);
    case Op::div:
      return map<Div, true>(s, rows, columns);
    case Op::min:
      return map<Min, true>(s, rows, columns);
    case Op::max:
      return map<Max, true>(s, rows, columns);
    default:
      return map<Copy, false>(s, rows, columns);
  }
}

void run(const BlockStep& s, int64_t rows, int64_t columns) {
  if (s.op == Op::sum) return reduce<Sum>(s, rows, columns);
  if (s.op == Op::reduce_max) return reduce<Largest>(s, rows, columns);
  if (s.to_bf16 && s.op == Op::cast) return map<Round, false>(s, rows, columns);
  apply(s, rows, columns);
  if (s.to_bf16)
    map<Round, false>({.a = {s.out, s.out_row_stride}, .out = s.out, .out_row_stride = s.out_row_stride},
                      rows, columns);
}

}  // namespace
}  // namespace fathom::compile::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::compile {

HWY_EXPORT(run);

void run_block_step(const BlockStep& step, int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(run)(step, rows, columns);
}

}  // namespace fathom::compile
#endif
