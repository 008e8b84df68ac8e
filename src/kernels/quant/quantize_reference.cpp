#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "core/expect.h"
#include "core/mxfp4_nvfp4.h"
#include "core/mxfp8.h"
#include "kernels/quant/quantize.h"

namespace fathom::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class Code>
float largest_code() {
  if constexpr (std::is_same_v<Code, int8_t>)
    return 127;
  else
    return Code::max();
}

template <class Code>
Code encoded(float value) {
  if constexpr (std::is_same_v<Code, int8_t>)
    return static_cast<int8_t>(std::clamp(std::nearbyint(value), -127.0f, 127.0f));
  else
    return std::isnan(value) ? Code::from_bits(0x7f) : Code(value);
}

// NaN if any is not finite.
float amax(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) {
    if (!std::isfinite(value)) return kNan;
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

float fp32_scale(float largest, float largest_code) {
  return std::isnan(largest) ? kNan : std::max(largest / largest_code, kSmallestScale);
}

// Numbers first .. first + padded of a row, with zeros after its end.
std::vector<float> group(View<const bf16, 2> x, int64_t row, int64_t first, int64_t padded) {
  std::vector<float> numbers(static_cast<size_t>(padded));
  for (int64_t c = first; c < std::min(first + padded, x.extent(1)); ++c)
    numbers[static_cast<size_t>(c - first)] = static_cast<float>(x(row, c));
  return numbers;
}

template <class Code>
void encode_group(View<const bf16, 2> x, int64_t row, int64_t first, int64_t last, float scale,
                  View<Code, 2> codes) {
  for (int64_t c = first; c < last; ++c)
    codes(row, c) =
        std::isnan(scale) ? encoded<Code>(0) : encoded<Code>(static_cast<float>(x(row, c)) / scale);
}

template <class Code>
void encode(View<const bf16, 2> x, const TensorScaled<Code>& q) {
  for (int64_t r = 0; r < x.extent(0); ++r) encode_group(x, r, 0, x.extent(1), q.scale(0), q.codes);
}

template <class Code>
void encode(View<const bf16, 2> x, const RowScaled<Code>& q) {
  for (int64_t r = 0; r < x.extent(0); ++r) {
    q.scales(r) = fp32_scale(amax(group(x, r, 0, x.extent(1))), largest_code<Code>());
    encode_group(x, r, 0, x.extent(1), q.scales(r), q.codes);
  }
}

template <class Code>
void encode(View<const bf16, 2> x, const BlockScaled<Code>& q) {
  for (int64_t r = 0; r < x.extent(0); ++r)
    for (int64_t c = 0; c < x.extent(1); c += q.kBlock) {
      float& scale = q.scales(r, c / q.kBlock);
      scale        = fp32_scale(amax(group(x, r, c, q.kBlock)), largest_code<Code>());
      encode_group(x, r, c, std::min(c + q.kBlock, x.extent(1)), scale, q.codes);
    }
}

void encode(View<const bf16, 2> x, const Mxfp8& q) {
  std::vector<fp8_e4m3> values(kMxfp8Block);
  for (int64_t r = 0; r < x.extent(0); ++r)
    for (int64_t c = 0; c < x.extent(1); c += kMxfp8Block) {
      encode_mxfp8(group(x, r, c, kMxfp8Block), values, {&q.scales(r, c / kMxfp8Block), 1});
      for (int64_t i = c; i < std::min(c + kMxfp8Block, x.extent(1)); ++i)
        q.codes(r, i) = values[static_cast<size_t>(i - c)];
    }
}

void put_nibbles(std::span<const uint8_t> values, int64_t row, int64_t first, View<uint8_t, 2> codes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t byte = first / 2 + static_cast<int64_t>(i);
    if (byte < codes.extent(1)) codes(row, byte) = values[i];
  }
}

void encode(View<const bf16, 2> x, const Mxfp4& q) {
  std::vector<uint8_t> values(kMxfp4Block / 2);
  for (int64_t r = 0; r < x.extent(0); ++r)
    for (int64_t c = 0; c < x.extent(1); c += kMxfp4Block) {
      encode_mxfp4(group(x, r, c, kMxfp4Block), values, {&q.scales(r, c / kMxfp4Block).bits, 1});
      put_nibbles(values, r, c, q.codes);
    }
}

void encode(View<const bf16, 2> x, const Nvfp4& q) {
  std::vector<uint8_t> values(kNvfp4Block / 2);
  const float of_tensor = q.tensor_scale(0);
  for (int64_t r = 0; r < x.extent(0); ++r)
    for (int64_t c = 0; c < x.extent(1); c += kNvfp4Block) {
      uint8_t& scale = q.scales(r, c / kNvfp4Block).bits;
      if (std::isnan(of_tensor)) {
        scale = 0x7f;
        std::fill(values.begin(), values.end(), uint8_t{0});
      } else {
        encode_nvfp4(group(x, r, c, kNvfp4Block), of_tensor, values, {&scale, 1});
      }
      put_nibbles(values, r, c, q.codes);
    }
}

float nibble(View<uint8_t, 2> codes, int64_t r, int64_t c) {
  return static_cast<float>(fp4_e2m1::from_bits(codes(r, c / 2) >> (c % 2 * 4) & 15));
}

template <class Code>
float decoded(const TensorScaled<Code>& q, int64_t r, int64_t c) {
  return static_cast<float>(q.codes(r, c)) * q.scale(0);
}
template <class Code>
float decoded(const RowScaled<Code>& q, int64_t r, int64_t c) {
  return static_cast<float>(q.codes(r, c)) * q.scales(r);
}
template <class Code>
float decoded(const BlockScaled<Code>& q, int64_t r, int64_t c) {
  return static_cast<float>(q.codes(r, c)) * q.scales(r, c / q.kBlock);
}
float decoded(const Mxfp8& q, int64_t r, int64_t c) {
  return static_cast<float>(q.codes(r, c)) * static_cast<float>(q.scales(r, c / kMxfp8Block));
}
float decoded(const Mxfp4& q, int64_t r, int64_t c) {
  return nibble(q.codes, r, c) * static_cast<float>(q.scales(r, c / kMxfp4Block));
}
float decoded(const Nvfp4& q, int64_t r, int64_t c) {
  return nibble(q.codes, r, c) * static_cast<float>(q.scales(r, c / kNvfp4Block)) * q.tensor_scale(0);
}

template <class Code>
float largest_of(const TensorScaled<Code>&) {
  return largest_code<Code>();
}
float largest_of(const Nvfp4&) { return fp4_e2m1::max() * fp8_e4m3::max(); }

template <class Code>
float& scale_of(const TensorScaled<Code>& q) {
  return q.scale(0);
}
float& scale_of(const Nvfp4& q) { return q.tensor_scale(0); }

}  // namespace

template <class Format>
void quantize_reference(View<const bf16, 2> x, const Format& q) {
  if (x.size() > 0) encode(x, q);
}

template <class Format>
void dequantize_reference(const Format& q, View<bf16, 2> out) {
  for (int64_t r = 0; r < out.extent(0); ++r)
    for (int64_t c = 0; c < out.extent(1); ++c) out(r, c) = bf16(decoded(q, r, c));
}

template <class Format>
void tensor_scale_reference(View<const bf16, 2> x, const Format& q) {
  float largest = 0;
  for (int64_t r = 0; r < x.extent(0) && !std::isnan(largest); ++r) {
    const float of_row = amax(group(x, r, 0, x.extent(1)));
    largest            = std::isnan(of_row) ? kNan : std::max(largest, of_row);
  }
  scale_of(q) = fp32_scale(largest, largest_of(q));
}

template void tensor_scale_reference(View<const bf16, 2>, const TensorScaled<fp8_e4m3>&);
template void tensor_scale_reference(View<const bf16, 2>, const TensorScaled<fp8_e5m2>&);
template void tensor_scale_reference(View<const bf16, 2>, const Nvfp4&);

#define FATHOM_INSTANTIATE(...)                                              \
  template void quantize_reference(View<const bf16, 2>, const __VA_ARGS__&); \
  template void dequantize_reference(const __VA_ARGS__&, View<bf16, 2>)
FATHOM_INSTANTIATE(TensorScaled<fp8_e4m3>);
FATHOM_INSTANTIATE(TensorScaled<fp8_e5m2>);
FATHOM_INSTANTIATE(RowScaled<fp8_e4m3>);
FATHOM_INSTANTIATE(RowScaled<fp8_e5m2>);
FATHOM_INSTANTIATE(RowScaled<int8_t>);
FATHOM_INSTANTIATE(BlockScaled<fp8_e4m3>);
FATHOM_INSTANTIATE(BlockScaled<fp8_e5m2>);
FATHOM_INSTANTIATE(BlockScaled<int8_t>);
FATHOM_INSTANTIATE(Mxfp8);
FATHOM_INSTANTIATE(Mxfp4);
FATHOM_INSTANTIATE(Nvfp4);

}  // namespace fathom::kernels
