// The exponential of a softmax: of vectors of numbers that are not positive, because the maximum has been
// taken off.
#pragma once

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"

namespace fathom::lab {

// exp(x) for x <= 0, within 1 ulp or so; 0 below -87, where the result would not be a normal number, and for
// -infinity.
//
//   n = round(x / ln 2), r = x - n ln 2, exp(x) = 2^n (1 + r + r^2 P(r)), |r| <= ln(2)/2, P of degree 4,
//   wrong by 1e-8
//
// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits, ready to be added to an exponent. 14
// instructions; hn::Exp, which takes any argument, needs more than twice as long.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> exponential(D d, hwy::HWY_NAMESPACE::Vec<D> x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> bits;
  const auto magic   = hn::Set(d, 0x1.8p23f);
  const auto rounded = hn::MulAdd(x, hn::Set(d, 0x1.715476p+0f), magic);
  const auto n       = hn::Sub(rounded, magic);
  // ln 2 in two floats: the first product is exact inside the multiply-add.
  const auto r =
      hn::NegMulAdd(n, hn::Set(d, -0x1.05c61p-29f), hn::NegMulAdd(n, hn::Set(d, 0x1.62e43p-1f), x));
  auto p = hn::Set(d, 0x1.6d10fcp-10f);
  p      = hn::MulAdd(p, r, hn::Set(d, 0x1.120b62p-7f));
  p      = hn::MulAdd(p, r, hn::Set(d, 0x1.55551ap-5f));
  p      = hn::MulAdd(p, r, hn::Set(d, 0x1.5554dep-3f));
  p      = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p      = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  const auto scaled =
      hn::BitCast(d, hn::Add(hn::BitCast(bits, p), hn::ShiftLeft<23>(hn::BitCast(bits, rounded))));
  return hn::IfThenElseZero(hn::Gt(x, hn::Set(d, -87.0f)), scaled);
}

}  // namespace fathom::lab
