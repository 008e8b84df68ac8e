// AVX2 and FMA: 12 chains cover a latency of 4 or 5 cycles on two units, and leave registers for the
// constants.
#include <immintrin.h>

#include "machine/fma_kernels.h"

// Behind the includes: their inline functions must run on every processor.
#pragma GCC target("avx2,fma")

namespace fathom::machine {
namespace {

constexpr int kChains = 12;

double fma_fp32(int64_t steps) {
  __m256 chains[kChains], factor = _mm256_set1_ps(1), term = _mm256_set1_ps(static_cast<float>(kFmaTerm));
  for (int c = 0; c < kChains; ++c) chains[c] = _mm256_set1_ps(static_cast<float>(1 + c));
  asm volatile("" : "+x"(factor), "+x"(term));  // hides the values from the compiler
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) chains[c] = _mm256_fmadd_ps(chains[c], factor, term);
  }
  double total = 0;
  for (int c = 0; c < kChains; ++c) total += static_cast<double>(_mm256_cvtss_f32(chains[c]));
  return total;
}

double fma_fp64(int64_t steps) {
  __m256d chains[kChains], factor = _mm256_set1_pd(1), term = _mm256_set1_pd(kFmaTerm);
  for (int c = 0; c < kChains; ++c) chains[c] = _mm256_set1_pd(1 + c);
  asm volatile("" : "+x"(factor), "+x"(term));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) chains[c] = _mm256_fmadd_pd(chains[c], factor, term);
  }
  double total = 0;
  for (int c = 0; c < kChains; ++c) total += _mm256_cvtsd_f64(chains[c]);
  return total;
}

constexpr Feature kNeeds[] = {Feature::avx2, Feature::fma};

const FmaKernel kKernels[] = {
    {"avx2+fma", DType::fp32, kNeeds, kChains * 2.0 * 8, fma_fp32},
    {"avx2+fma", DType::fp64, kNeeds, kChains * 2.0 * 4, fma_fp64},
};

}  // namespace

std::span<const FmaKernel> fma_kernels_avx2() { return kKernels; }

}  // namespace fathom::machine
