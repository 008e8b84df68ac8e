// No code exists: a float is rounded to the steps that the format has at its size. Adding 1.5 * 2^23 steps
// pushes what is smaller than a step out of the float, to nearest and ties to even, as the format wants it;
// subtracting them leaves the rounded number. There is no branch, so the loop is vectors of 8.
#include <cmath>

#include "groups.h"

namespace fathom::lab::format_errors {

using namespace kernels;
namespace {

// The exponent of the smallest normal number, mantissa bits, and the largest number.
struct Steps {
  int smallest, mantissa;
  float largest;
};
template <class Format>
constexpr Steps steps_of() {
  constexpr float kLargest = largest_code<Format>();
  if constexpr (kPacked<Format>) return {0, 1, kLargest};
  if constexpr (std::is_same_v<CodeOf<Format>, fp8_e4m3>) return {-6, 3, kLargest};
  if constexpr (std::is_same_v<CodeOf<Format>, fp8_e5m2>) return {-14, 2, kLargest};
  return {7, 7, kLargest};  // int8: steps of 1 everywhere
}

// Magnitudes of floats are ordered as integers are; a minimum of floats would be a branch, for NaN. It comes
// last: before the other one, g++ makes a branch of both.
template <Steps kSteps>
float rounded(float x) {
  constexpr uint32_t kLargest  = std::bit_cast<uint32_t>(kSteps.largest);
  constexpr uint32_t kSmallest = static_cast<uint32_t>(kSteps.smallest + 127) << 23;
  const uint32_t magnitude     = std::bit_cast<uint32_t>(x) & 0x7fffffff;
  const uint32_t exponent      = std::max(magnitude & 0x7f800000, kSmallest);
  const float pushed =
      1.5f * std::bit_cast<float>(exponent + (static_cast<uint32_t>(23 - kSteps.mantissa) << 23));
  const float sum = std::bit_cast<float>(magnitude) + pushed - pushed;
  return std::copysign(std::bit_cast<float>(std::min(std::bit_cast<uint32_t>(sum), kLargest)), x);
}

// Of finite numbers. bf16's own constructor branches for NaN.
bf16 to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return bf16::from_bits((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class Format>
void round_group(const bf16* x, int64_t n, float scale, float tensor_scale, bf16* out) {
  const float unit = scale * tensor_scale;
  if (unit == 0) {
    std::fill_n(out, n, bf16::from_bits(0));
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    out[i] = to_bf16(rounded<steps_of<Format>()>(static_cast<float>(x[i]) / unit) * scale * tensor_scale);
}

}  // namespace

void rounded_in_fp32(const FakeQuantize& p, Context&) {
  with_format(p.format, [&]<class Format>() {
    for (int64_t t = 0; t < p.x.extent(0); ++t)
      round_groups<Format>(p.matrix(t), p.rounded(t), round_group<Format>);
  });
}

}  // namespace fathom::lab::format_errors
