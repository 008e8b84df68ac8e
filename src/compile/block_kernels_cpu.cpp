// v = op(v, other), one after another, for each number of a block of 4 KiB, fp32
//
// limit   L1, whose stores are the scarcest: one vector in two cycles on a Zen 4
// idea    a chain passes over four vectors at a time, which stay in registers between its ops; the switch for
//         each op costs less than the store and the load that it saves
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
struct Greater {
  static HWY_INLINE V of(F f, V a, V b) { return hn::IfThenElseZero(hn::Gt(a, b), hn::Set(f, 1.0f)); }
};
struct Round {
  static HWY_INLINE V of(F f, V a, V) { return rounded(f, a); }
};

struct Sum {
  static constexpr float kIdentity = 0;
  static HWY_INLINE V combine(V a, V b) { return hn::Add(a, b); }
  static HWY_INLINE V of_lanes(F f, V v) { return hn::SumOfLanes(f, v); }
};
struct Largest {
  static constexpr float kIdentity = -std::numeric_limits<float>::infinity();
  static HWY_INLINE V combine(V a, V b) { return hn::Max(a, b); }
  static HWY_INLINE V of_lanes(F f, V v) { return hn::MaxOfLanes(f, v); }
};
struct Nothing {
  static constexpr float kIdentity = 0;
  static HWY_INLINE V combine(V a, V) { return a; }
  static HWY_INLINE V of_lanes(F, V v) { return v; }
};

// Four vectors, or one with a mask: a switch for each op is little beside what it does to them.
struct Tile {
  V v0, v1, v2, v3;

  static HWY_INLINE int64_t size(F f) { return 4 * static_cast<int64_t>(hn::Lanes(f)); }
  static HWY_INLINE Tile all(F f, float number, int64_t) {
    const V v = hn::Set(f, number);
    return {v, v, v, v};
  }
  static HWY_INLINE Tile load(F f, const float* from, int64_t) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(f));
    return {hn::LoadU(f, from), hn::LoadU(f, from + lanes), hn::LoadU(f, from + 2 * lanes),
            hn::LoadU(f, from + 3 * lanes)};
  }
  HWY_INLINE void store(F f, float* to) const {
    const auto lanes = static_cast<int64_t>(hn::Lanes(f));
    hn::StoreU(v0, f, to);
    hn::StoreU(v1, f, to + lanes);
    hn::StoreU(v2, f, to + 2 * lanes);
    hn::StoreU(v3, f, to + 3 * lanes);
  }
  template <class Function>
  HWY_INLINE void apply(F f, const Tile& a, const Tile& b) {
    v0 = Function::of(f, a.v0, b.v0);
    v1 = Function::of(f, a.v1, b.v1);
    v2 = Function::of(f, a.v2, b.v2);
    v3 = Function::of(f, a.v3, b.v3);
  }
  template <class R>
  HWY_INLINE void reduce_into(F, Tile& sums) const {
    sums.v0 = R::combine(sums.v0, v0);
    sums.v1 = R::combine(sums.v1, v1);
    sums.v2 = R::combine(sums.v2, v2);
    sums.v3 = R::combine(sums.v3, v3);
  }
};

struct Rest {
  V v0;
  int64_t n;  // lanes that count

  static HWY_INLINE Rest all(F f, float number, int64_t n) { return {hn::Set(f, number), n}; }
  static HWY_INLINE Rest load(F f, const float* from, int64_t n) {
    return {hn::MaskedLoad(hn::FirstN(f, static_cast<size_t>(n)), f, from), n};
  }
  HWY_INLINE void store(F f, float* to) const {
    hn::BlendedStore(v0, hn::FirstN(f, static_cast<size_t>(n)), f, to);
  }
  template <class Function>
  HWY_INLINE void apply(F f, const Rest& a, const Rest& b) {
    v0 = Function::of(f, a.v0, b.v0);
  }
  template <class R>
  HWY_INLINE void reduce_into(F f, Tile& sums) const {
    sums.v0 = R::combine(sums.v0,
                         hn::IfThenElse(hn::FirstN(f, static_cast<size_t>(n)), v0, hn::Set(f, R::kIdentity)));
  }
};

// The operands of a chain in one row.
struct Row {
  const float* first;
  std::array<const float*, BlockChain::kLength> others;
  std::array<float*, BlockChain::kLength> outs;
};

template <class T>
HWY_INLINE T operand(F f, const BlockOperand& operand, const float* row, int64_t i, int64_t n) {
  return operand.scalar() ? T::all(f, *row, n) : T::load(f, row + i, n);
}

// Not inlined: they need all registers, and the other ops want theirs.
template <class T>
HWY_NOINLINE void apply_function(F f, Op op, T& v) {
  if (op == Op::exp) return v.template apply<Exp>(f, v, v);
  if (op == Op::sigmoid) return v.template apply<Sigmoid>(f, v, v);
  v.template apply<Tanh>(f, v, v);
}

template <class T>
HWY_INLINE void apply(F f, Op op, const T& a, const T& b, T& v) {
  switch (op) {
    case Op::cast:
      return;
    case Op::neg:
      return v.template apply<Neg>(f, a, a);
    case Op::abs:
      return v.template apply<Abs>(f, a, a);
    case Op::sqrt:
      return v.template apply<Sqrt>(f, a, a);
    case Op::rsqrt:
      return v.template apply<Rsqrt>(f, a, a);
    case Op::add:
      return v.template apply<Add>(f, a, b);
    case Op::sub:
      return v.template apply<Sub>(f, a, b);
    case Op::mul:
      return v.template apply<Mul>(f, a, b);
    case Op::div:
      return v.template apply<Div>(f, a, b);
    case Op::min:
      return v.template apply<Min>(f, a, b);
    case Op::max:
      return v.template apply<Max>(f, a, b);
    case Op::greater:
      return v.template apply<Greater>(f, a, b);
    default: {
      T function = a;
      apply_function(f, op, function);
      v = function;
    }
  }
}

// The chain's value of n elements from column i on.
template <class T>
HWY_INLINE T value(F f, const BlockChain& chain, const Row& row, int64_t i, int64_t n) {
  T v = operand<T>(f, chain.first, row.first, i, n);
  for (int k = 0; k < chain.count; ++k) {
    const BlockOp& op = chain.ops[static_cast<size_t>(k)];
    T a = v, b = v;
    if (op.other.data) {
      const T other = operand<T>(f, op.other, row.others[static_cast<size_t>(k)], i, n);
      if (op.swapped)
        a = other;
      else
        b = other;
    }
    apply(f, op.op, a, b, v);
    if (op.to_bf16) v.template apply<Round>(f, v, v);
    if (op.out) v.store(f, row.outs[static_cast<size_t>(k)] + i);
  }
  return v;
}

template <class R>
void run_row(const BlockChain& chain, const Row& row, int64_t columns, float* reduced) {
  const F f;
  const auto lanes = static_cast<int64_t>(hn::Lanes(f));
  Tile sums        = Tile::all(f, R::kIdentity, 0);
  int64_t i        = 0;
  for (; i + Tile::size(f) <= columns; i += Tile::size(f))
    value<Tile>(f, chain, row, i, Tile::size(f)).template reduce_into<R>(f, sums);
  for (; i < columns; i += lanes) {
    const int64_t n = std::min(lanes, columns - i);
    value<Rest>(f, chain, row, i, n).template reduce_into<R>(f, sums);
  }
  if (!reduced) return;
  V all = R::of_lanes(f, R::combine(R::combine(sums.v0, sums.v1), R::combine(sums.v2, sums.v3)));
  if (chain.accumulate) all = R::combine(hn::Set(f, *reduced), all);
  // Once, when the row is done.
  *reduced = hn::GetLane(chain.reduced_to_bf16 ? rounded(f, all) : all);
}

bool is_flat(const BlockOperand& operand, int64_t columns) {
  return !operand.data || (!operand.scalar() && operand.row_stride == columns) ||
         (operand.scalar() && operand.row_stride == 0);
}

// Whether rows follow one another in all that the chain touches, so that they are one.
bool is_flat(const BlockChain& chain, int64_t columns) {
  if (chain.reduced || !is_flat(chain.first, columns)) return false;
  return std::all_of(chain.ops.begin(), chain.ops.begin() + chain.count, [&](const BlockOp& op) {
    return is_flat(op.other, columns) && (!op.out || op.out_row_stride == columns);
  });
}

void run(const BlockChain& chain, int64_t rows, int64_t columns) {
  if (is_flat(chain, columns)) {
    columns *= rows;
    rows = 1;
  }
  Row row;
  for (int64_t r = 0; r < rows; ++r) {
    row.first = chain.first.data + r * chain.first.row_stride;
    for (int k = 0; k < chain.count; ++k) {
      const auto at     = static_cast<size_t>(k);
      const BlockOp& op = chain.ops[at];
      row.others[at]    = op.other.data ? op.other.data + r * op.other.row_stride : nullptr;
      row.outs[at]      = op.out ? op.out + r * op.out_row_stride : nullptr;
    }
    float* reduced = chain.reduced ? chain.reduced + r * chain.reduced_row_stride : nullptr;
    if (chain.reduce == Op::reduce_max)
      run_row<Largest>(chain, row, columns, reduced);
    else if (chain.reduce == Op::sum)
      run_row<Sum>(chain, row, columns, reduced);
    else
      run_row<Nothing>(chain, row, columns, nullptr);
  }
}

}  // namespace
}  // namespace fathom::compile::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::compile {

HWY_EXPORT(run);

void run_block_chain(const BlockChain& chain, int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(run)(chain, rows, columns);
}

}  // namespace fathom::compile
#endif
