// Steps of the variants that multiply in fp32: dequantizing a row, a dot product, and an expert made of
// products.
#pragma once

#include <array>
#include <cmath>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 includes neither; Highway would fall back to SSSE3
#include "expert_gemv.h"
#include "hwy/highway.h"

namespace fathom::lab::expert_gemv_cpu {

// The two numbers of a byte.
inline constexpr auto kPairs = [] {
  std::array<std::array<float, 2>, 256> pairs{};
  for (uint32_t byte = 0; byte < 256; ++byte)
    pairs[byte] = {static_cast<float>(fp4_e2m1::from_bits(byte & 15)),
                   static_cast<float>(fp4_e2m1::from_bits(byte >> 4))};
  return pairs;
}();

inline void dequantize_row(const kernels::Mxfp4Matrices& w, int64_t expert, int64_t output, float* row) {
  const int64_t groups  = w.scales.extent(2);
  const uint8_t* blocks = &w.blocks(expert, output, 0, 0);
  const uint8_t* scales = &w.scales(expert, output, 0);
  for (int64_t g = 0; g < groups; ++g) {
    const auto scale = static_cast<float>(e8m0::from_bits(scales[g]));
    for (int64_t b = g * 16; b < g * 16 + 16; ++b) {
      row[2 * b]     = kPairs[blocks[b]][0] * scale;
      row[2 * b + 1] = kPairs[blocks[b]][1] * scale;
    }
  }
}

HWY_INLINE float dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 8> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i < n; i += 4 * kLanes) {  // n is a multiple of 32
    s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, a + i + kLanes), hn::LoadU(d, b + i + kLanes), s1);
    s2 = hn::MulAdd(hn::LoadU(d, a + i + 2 * kLanes), hn::LoadU(d, b + i + 2 * kLanes), s2);
    s3 = hn::MulAdd(hn::LoadU(d, a + i + 3 * kLanes), hn::LoadU(d, b + i + 3 * kLanes), s3);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// out = the weighted sum of the token's experts; multiply(w, expert, in, products) computes all outputs of an
// expert's matrix.
template <class Multiply>
void run_experts(const ExpertGemv& p, const Multiply& multiply) {
  const int64_t width = p.width();
  float* out          = p.out.data();
  std::fill_n(out, width, 0.0f);
  for (int64_t k = 0; k < kExperts; ++k) {
    const int64_t e = p.experts(0, k);
    float* units    = p.units.data();
    multiply(p.mlp1, e, p.x.data(), units);
    for (int64_t i = 0; i < 2 * width; ++i) units[i] += static_cast<float>(p.mlp1_bias(e, i));
    for (int64_t i = 0; i < width; ++i) {
      const float gate = std::min(units[2 * i], kLimit), up = std::clamp(units[2 * i + 1], -kLimit, kLimit);
      p.activations(i) = gate / (1 + std::exp(-kAlpha * gate)) * (up + 1);
    }
    multiply(p.mlp2, e, p.activations.data(), units);
    for (int64_t h = 0; h < width; ++h)
      out[h] += p.weights(0, k) * (units[h] + static_cast<float>(p.mlp2_bias(e, h)));
  }
}

}  // namespace fathom::lab::expert_gemv_cpu
