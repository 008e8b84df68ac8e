// SSE2 (or other 128-bit vectors) without a fused instruction: chains of multiplications run beside chains of
// additions, the peak of separate multipliers and adders.
#include "machine/fma_kernels.h"

#include <vector>

namespace fathom::machine {
namespace {

constexpr int kChains = 7;  // of each kind: 14 registers, and two for the constants

template <class T>
double multiply_and_add(int64_t steps) {
  typedef T Vector __attribute__((vector_size(16)));
  constexpr int kLanes = 16 / sizeof(T);
  Vector products[kChains], sums[kChains], factor, term;
  for (int lane = 0; lane < kLanes; ++lane) {
    factor[lane] = static_cast<T>(-1);
    term[lane]   = static_cast<T>(kFmaTerm);
    for (int c = 0; c < kChains; ++c) products[c][lane] = sums[c][lane] = static_cast<T>(1 + c);
  }
  asm volatile("" : "+x"(factor), "+x"(term));  // hides the values from the compiler
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      products[c] = products[c] * factor;
      sums[c]     = sums[c] + term;
    }
  }
  double total = 0;
  for (int c = 0; c < kChains; ++c)
    total += static_cast<double>(products[c][0]) + static_cast<double>(sums[c][0]);
  return total;
}

constexpr Feature kNeedsSse2[] = {Feature::sse2};

const FmaKernel kKernels[] = {
    {"sse2", DType::fp32, kNeedsSse2, kChains * 2.0 * 4, multiply_and_add<float>},
    {"sse2", DType::fp64, kNeedsSse2, kChains * 2.0 * 2, multiply_and_add<double>},
};

}  // namespace

std::span<const FmaKernel> fma_kernels_portable() { return kKernels; }

std::span<const FmaKernel> fma_kernels() {
  static const std::vector<FmaKernel> all = [] {
    std::vector<FmaKernel> list;
    for (const auto part :
         {fma_kernels_portable(), fma_kernels_avx2(), fma_kernels_avx512(), fma_kernels_amx()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

}  // namespace fathom::machine
