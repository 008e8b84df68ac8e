// AVX-512: 12 chains cover a latency of 4 to 6 cycles on two units.
#include <immintrin.h>

#include "machine/fma_kernels.h"

// Behind the includes: their inline functions must run on every processor.
#pragma GCC target("avx512f,avx512bw,avx512vnni,avx512bf16")

namespace fathom::machine {
namespace {

constexpr int kChains = 12;

double fma_fp32(int64_t steps) {
  __m512 chains[kChains], factor = _mm512_set1_ps(1), term = _mm512_set1_ps(static_cast<float>(kFmaTerm));
  for (int c = 0; c < kChains; ++c) chains[c] = _mm512_set1_ps(static_cast<float>(1 + c));
  asm volatile("" : "+v"(factor), "+v"(term));  // hides the values from the compiler
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) chains[c] = _mm512_fmadd_ps(chains[c], factor, term);
  }
  double total = 0;
  for (int c = 0; c < kChains; ++c) total += static_cast<double>(_mm512_cvtss_f32(chains[c]));
  return total;
}

double fma_fp64(int64_t steps) {
  __m512d chains[kChains], factor = _mm512_set1_pd(1), term = _mm512_set1_pd(kFmaTerm);
  for (int c = 0; c < kChains; ++c) chains[c] = _mm512_set1_pd(1 + c);
  asm volatile("" : "+v"(factor), "+v"(term));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) chains[c] = _mm512_fmadd_pd(chains[c], factor, term);
  }
  double total = 0;
  for (int c = 0; c < kChains; ++c) total += _mm512_cvtsd_f64(chains[c]);
  return total;
}

double dot_int8(int64_t steps) {  // four int8 products into each 32-bit sum; sums may wrap
  __m512i chains[kChains], a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(2);
  for (int c = 0; c < kChains; ++c) chains[c] = _mm512_set1_epi32(c);
  asm volatile("" : "+v"(a), "+v"(b));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) chains[c] = _mm512_dpbusd_epi32(chains[c], a, b);
  }
  double total = 0;
  for (int c = 0; c < kChains; ++c) total += _mm512_cvtsi512_si32(chains[c]);
  return total;
}

double dot_bf16(int64_t steps) {  // two products into each fp32 sum
  __m512 chains[kChains];
  __m512i a = _mm512_set1_epi16(0x3f80), b = _mm512_set1_epi16(0x3a80);  // 1 and kFmaTerm
  for (int c = 0; c < kChains; ++c) chains[c] = _mm512_set1_ps(static_cast<float>(1 + c));
  asm volatile("" : "+v"(a), "+v"(b));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c)
      chains[c] = _mm512_dpbf16_ps(chains[c], reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  double total = 0;
  for (int c = 0; c < kChains; ++c) total += static_cast<double>(_mm512_cvtss_f32(chains[c]));
  return total;
}

constexpr Feature kNeeds[]     = {Feature::avx512f};
constexpr Feature kNeedsVnni[] = {Feature::avx512f, Feature::avx512_vnni};
constexpr Feature kNeedsBf16[] = {Feature::avx512f, Feature::avx512_bf16};

const FmaKernel kKernels[] = {
    {"avx512f", DType::fp32, kNeeds, kChains * 2.0 * 16, fma_fp32},
    {"avx512f", DType::fp64, kNeeds, kChains * 2.0 * 8, fma_fp64},
    {"avx512_vnni", DType::int8, kNeedsVnni, kChains * 2.0 * 64, dot_int8},
    {"avx512_bf16", DType::bf16, kNeedsBf16, kChains * 2.0 * 32, dot_bf16},
};

}  // namespace

std::span<const FmaKernel> fma_kernels_avx512() { return kKernels; }

}  // namespace fathom::machine
