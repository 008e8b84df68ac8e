// Steps of a head in AVX2 vectors: the score of a key, adding a weighted value, and the softmax.
#pragma once

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 includes neither; Highway would fall back to SSSE3
#include <cmath>
#include "attention.h"
#include "hwy/highway.h"

namespace fathom::lab::decode_attention_cpu {

HWY_INLINE float score_of(const float* HWY_RESTRICT query, const float* HWY_RESTRICT key) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 8> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  auto even = hn::Zero(d), odd = hn::Zero(d);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kHeadDim; i += 2 * kLanes) {
    even = hn::MulAdd(hn::LoadU(d, query + i), hn::LoadU(d, key + i), even);
    odd  = hn::MulAdd(hn::LoadU(d, query + i + kLanes), hn::LoadU(d, key + i + kLanes), odd);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd))) * kScale;
}

HWY_INLINE void add_value(float weight, const float* HWY_RESTRICT value, float* HWY_RESTRICT sum) {
  for (int64_t i = 0; i < kHeadDim; ++i) sum[i] += weight * value[i];
}

// Turns scores into weights in place; returns the sum of the weights and the sink's.
inline float softmax(float sink, float* scores, int64_t count) {
  float max_score = sink;
  for (int64_t j = 0; j < count; ++j) max_score = std::max(max_score, scores[j]);
  float total = std::exp(sink - max_score);
  for (int64_t j = 0; j < count; ++j) {
    scores[j] = std::exp(scores[j] - max_score);
    total += scores[j];
  }
  return total;
}

}  // namespace fathom::lab::decode_attention_cpu
