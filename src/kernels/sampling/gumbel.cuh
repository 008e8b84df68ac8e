// Gumbel numbers of tokens on the GPU: core/gumbel.h in fp32, the same bits in every kernel.
#pragma once

#include <cfloat>
#include <cstdint>

#include "core/gumbel.h"
#include "cuda/philox.cuh"
#include "kernels/sampling/sampling_row.h"

namespace fathom::kernels {

// The words of tokens 4 vector .. 4 vector + 4.
__device__ inline uint4 gumbel_words(const SamplingRow& rule, int vector) {
  return philox(static_cast<uint64_t>(rule.position), 1 + static_cast<uint32_t>(vector), rule.seed);
}
// 1 - u, which floats hold where u is near 1.
__device__ inline float rest_of(uint32_t word) { return (static_cast<float>(~word) + 0.5f) * 0x1p-32f; }

__device__ inline float gumbel(uint32_t word) {
  const float minus_log_u =
      word >> 31 ? -log1pf(-rest_of(word)) : -logf((static_cast<float>(word) + 0.5f) * 0x1p-32f);
  return -logf(minus_log_u);
}

// logit / temperature + G. Finite where the logit is.
__device__ inline float perturbed(float logit, float inverse_temperature, float gumbel_number) {
  const float sum = __fmaf_rn(logit, inverse_temperature, gumbel_number);
  return fabsf(logit) < INFINITY ? fminf(fmaxf(sum, -FLT_MAX), FLT_MAX) : sum;
}

}  // namespace fathom::kernels
