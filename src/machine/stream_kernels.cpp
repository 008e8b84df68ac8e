#include "machine/stream_kernels.h"

#include "machine/features.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace fathom::machine {
namespace {

typedef uint64_t Vector __attribute__((vector_size(16)));

constexpr int kUnroll = 8;
static_assert(kStreamStep % (kUnroll * sizeof(Vector)) == 0);

uint64_t read(std::byte*, const std::byte* source, int64_t bytes, int64_t passes) {
  Vector sums[kUnroll] = {};
  for (int64_t pass = 0; pass < passes; ++pass) {
    const auto* from = reinterpret_cast<const Vector*>(source);
    for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(Vector)); i += kUnroll)
#pragma GCC unroll 16
      for (int u = 0; u < kUnroll; ++u) sums[u] ^= from[i + u];
    asm volatile("" ::: "memory");  // the next pass reads again
  }
  for (int u = 1; u < kUnroll; ++u) sums[0] ^= sums[u];
  return sums[0][0] ^ sums[0][1];
}

uint64_t write(std::byte* target, const std::byte*, int64_t bytes, int64_t passes) {
  for (int64_t pass = 0; pass < passes; ++pass) {
    auto* to = reinterpret_cast<Vector*>(target);
    for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(Vector)); i += kUnroll) {
#pragma GCC unroll 16
      for (int u = 0; u < kUnroll; ++u) to[i + u] = Vector{1, 2};
      asm volatile("" ::: "memory");  // a loop of stores, not a call of memset
    }
  }
  return 0;
}

uint64_t copy(std::byte* target, const std::byte* source, int64_t bytes, int64_t passes) {
  for (int64_t pass = 0; pass < passes; ++pass) {
    const auto* from = reinterpret_cast<const Vector*>(source);
    auto* to         = reinterpret_cast<Vector*>(target);
    for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(Vector)); i += kUnroll) {
      Vector block[kUnroll];
#pragma GCC unroll 16
      for (int u = 0; u < kUnroll; ++u) block[u] = from[i + u];
#pragma GCC unroll 16
      for (int u = 0; u < kUnroll; ++u) to[i + u] = block[u];
      asm volatile("" ::: "memory");  // a loop, not a call of memcpy
    }
  }
  return 0;
}

#if defined(__SSE2__)
uint64_t write_nontemporal(std::byte* target, const std::byte*, int64_t bytes, int64_t passes) {
  const __m128i value = _mm_set1_epi8(1);
  for (int64_t pass = 0; pass < passes; ++pass)
    for (int64_t i = 0; i < bytes; i += 64)
#pragma GCC unroll 16
      for (int u = 0; u < 64; u += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(target + i + u), value);
  _mm_sfence();
  return 0;
}

uint64_t copy_nontemporal(std::byte* target, const std::byte* source, int64_t bytes, int64_t passes) {
  for (int64_t pass = 0; pass < passes; ++pass)
    for (int64_t i = 0; i < bytes; i += 64)
#pragma GCC unroll 16
      for (int u = 0; u < 64; u += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(target + i + u),
                         _mm_load_si128(reinterpret_cast<const __m128i*>(source + i + u)));
  _mm_sfence();
  return 0;
}
#else
constexpr StreamKernel write_nontemporal = nullptr, copy_nontemporal = nullptr;
#endif

}  // namespace

const StreamKernels kStreamPortable = {"128-bit vectors",
                                       {read, write, write_nontemporal, copy, copy_nontemporal}};

std::vector<const StreamKernels*> runnable_stream_kernels() {
  std::vector<const StreamKernels*> kernels{&kStreamPortable};
  if (!missing(Feature::avx2)) kernels.insert(kernels.end(), {&kStreamAvx2, &kStreamAvx2FourWays});
  if (!missing(Feature::avx512f)) kernels.insert(kernels.end(), {&kStreamAvx512, &kStreamAvx512FourWays});
  return kernels;
}

void* const* chase(void* const* start, int64_t loads) {
  void* const* at = start;
  for (int64_t i = 0; i + 8 <= loads; i += 8)
    for (int u = 0; u < 8; ++u) at = static_cast<void* const*>(*at);
  for (int64_t i = loads - loads % 8; i < loads; ++i) at = static_cast<void* const*>(*at);
  return at;
}

}  // namespace fathom::machine
