// out(r, c) = op(a(r, c), b(r, c)), or op over c of a(r, c)       a block of 4 KiB, fp32
//
// limit   L1: two loads and a store for each vector
// idea    a tape's interpreter costs a call for 1024 numbers; between ops they lie in L1, not in registers
#include "compile/block_kernels_cpu.h"

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

// Calls f(offset, load, store) for the vectors of a row, the last one masked.
template <class Apply>
HWY_INLINE void for_each_vector(F f, int64_t n, const Apply& apply) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(f));
  int64_t i        = 0;
  for (; i + lanes <= n; i += lanes)
    apply(
        i, [&](const float* from) HWY_ATTR { return hn::LoadU(f, from); },
        [&](V v, float* to) HWY_ATTR { hn::StoreU(v, f, to); });
  if (i == n) return;
  const auto rest = hn::FirstN(f, static_cast<size_t>(n - i));
  apply(
      i, [&](const float* from) HWY_ATTR { return hn::MaskedLoad(rest, f, from); },
      [&](V v, float* to) HWY_ATTR { hn::BlendedStore(v, rest, f, to); });
}

bool is_flat(const BlockOperand& operand, int64_t columns) {
  return !operand.scalar && operand.row_stride == columns;
}

template <class Function>
HWY_INLINE void map(const BlockStep& s, int64_t rows, int64_t columns, bool binary,
                    const Function& function) {
  const F f;
  if (is_flat(s.a, columns) && s.out_row_stride == columns && (!binary || is_flat(s.b, columns))) {
    columns *= rows;
    rows = 1;
  }
  const auto finish = [&](V v) HWY_ATTR { return s.to_bf16 ? rounded(f, v) : v; };
  for (int64_t r = 0; r < rows; ++r) {
    const float *a = s.a.data + r * s.a.row_stride, *b = binary ? s.b.data + r * s.b.row_stride : a;
    float* out    = s.out + r * s.out_row_stride;
    const V all_a = hn::Set(f, s.a.scalar ? *a : 0.0f), all_b = hn::Set(f, binary && s.b.scalar ? *b : 0.0f);
    if (s.a.scalar)
      for_each_vector(f, columns, [&](int64_t i, const auto& load, const auto& store) HWY_ATTR {
        store(finish(function(all_a, binary && !s.b.scalar ? load(b + i) : all_b)), out + i);
      });
    else if (binary && s.b.scalar)
      for_each_vector(f, columns, [&](int64_t i, const auto& load, const auto& store) HWY_ATTR {
        store(finish(function(load(a + i), all_b)), out + i);
      });
    else
      for_each_vector(f, columns, [&](int64_t i, const auto& load, const auto& store) HWY_ATTR {
        store(finish(function(load(a + i), load(b + i))), out + i);
      });
  }
}

// of_copies: of a row whose numbers are all the same.
template <class Combine, class OfLanes, class OfCopies>
HWY_INLINE void reduce(const BlockStep& s, int64_t rows, int64_t columns, float identity,
                       const Combine& combine, const OfLanes& of_lanes, const OfCopies& of_copies) {
  const F f;
  const auto lanes = static_cast<int64_t>(hn::Lanes(f));
  for (int64_t r = 0; r < rows; ++r) {
    const float* a = s.a.data + r * s.a.row_stride;
    if (s.a.scalar) {
      const V whole               = columns == 0 ? hn::Set(f, identity) : of_copies(hn::Set(f, *a));
      s.out[r * s.out_row_stride] = hn::GetLane(s.to_bf16 ? rounded(f, whole) : whole);
      continue;
    }
    V v0 = hn::Set(f, identity), v1 = v0, v2 = v0, v3 = v0;
    int64_t i = 0;
    for (; i + 4 * lanes <= columns; i += 4 * lanes) {
      v0 = combine(v0, hn::LoadU(f, a + i));
      v1 = combine(v1, hn::LoadU(f, a + i + lanes));
      v2 = combine(v2, hn::LoadU(f, a + i + 2 * lanes));
      v3 = combine(v3, hn::LoadU(f, a + i + 3 * lanes));
    }
    for (; i + lanes <= columns; i += lanes) v0 = combine(v0, hn::LoadU(f, a + i));
    if (i < columns) {
      const auto rest = hn::FirstN(f, static_cast<size_t>(columns - i));
      v1 = combine(v1, hn::IfThenElse(rest, hn::MaskedLoad(rest, f, a + i), hn::Set(f, identity)));
    }
    const V all   = of_lanes(combine(combine(v0, v1), combine(v2, v3)));
    float& result = s.out[r * s.out_row_stride];
    result        = hn::GetLane(s.to_bf16 ? rounded(f, all) : all);
  }
}

void run(const BlockStep& s, int64_t rows, int64_t columns) {
  const F f;
  const V one      = hn::Set(f, 1.0f);
  const auto unary = [&](const auto& function) HWY_ATTR {
    map(s, rows, columns, false, [&](V a, V) HWY_ATTR { return function(a); });
  };
  const auto binary = [&](const auto& function) HWY_ATTR { map(s, rows, columns, true, function); };
  switch (s.op) {
    case Op::neg:
      return unary([&](V a) HWY_ATTR { return hn::Neg(a); });
    case Op::abs:
      return unary([&](V a) HWY_ATTR { return hn::Abs(a); });
    case Op::exp:
      return unary([&](V a) HWY_ATTR { return exponential(f, a); });
    case Op::sqrt:
      return unary([&](V a) HWY_ATTR { return hn::Sqrt(a); });
    case Op::rsqrt:
      return unary([&](V a) HWY_ATTR { return hn::Div(one, hn::Sqrt(a)); });
    case Op::sigmoid:
      return unary([&](V a) HWY_ATTR { return hn::Div(one, hn::Add(one, exponential(f, hn::Neg(a)))); });
    case Op::tanh: {
      // Beyond 10 it is 1 in fp32.
      const V limit = hn::Set(f, 10.0f);
      return unary([&](V a) HWY_ATTR {
        return unless_nan(a, hn::Tanh(f, hn::Min(limit, hn::Max(hn::Neg(limit), a))));
      });
    }
    case Op::add:
      return binary([&](V a, V b) HWY_ATTR { return hn::Add(a, b); });
    case Op::sub:
      return binary([&](V a, V b) HWY_ATTR { return hn::Sub(a, b); });
    case Op::mul:
      return binary([&](V a, V b) HWY_ATTR { return hn::Mul(a, b); });
    case Op::div:
      return binary([&](V a, V b) HWY_ATTR { return hn::Div(a, b); });
    case Op::min:
      return binary([&](V a, V b) HWY_ATTR { return hn::Min(a, b); });
    case Op::max:
      return binary([&](V a, V b) HWY_ATTR { return hn::Max(a, b); });
    case Op::sum:
      return reduce(
          s, rows, columns, 0, [](V a, V b) HWY_ATTR { return hn::Add(a, b); },
          [&](V v) HWY_ATTR { return hn::SumOfLanes(f, v); },
          [&](V v) HWY_ATTR { return hn::Mul(v, hn::Set(f, static_cast<float>(columns))); });
    case Op::reduce_max:
      return reduce(
          s, rows, columns, -std::numeric_limits<float>::infinity(),
          [](V a, V b) HWY_ATTR { return hn::Max(a, b); }, [&](V v) HWY_ATTR { return hn::MaxOfLanes(f, v); },
          [](V v) HWY_ATTR { return v; });
    default:
      return unary([](V a) HWY_ATTR { return a; });
  }
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
