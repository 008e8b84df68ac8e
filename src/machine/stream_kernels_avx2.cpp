// The loops of machine/stream_kernels.h in AVX2. Run only where the processor has it.
#include <immintrin.h>

#include "machine/stream_kernels.h"

// After the includes: what they define inline must stay runnable everywhere.
#pragma GCC target("avx2")

namespace fathom::machine {
namespace {

constexpr int kUnroll     = 16;  // vectors a step
constexpr int64_t kVector = sizeof(__m256i);

inline __m256i load(const std::byte* at) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(at)); }
inline void store(std::byte* at, __m256i value) { _mm256_store_si256(reinterpret_cast<__m256i*>(at), value); }
inline void stream(std::byte* at, __m256i value) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(at), value);
}

// Vector u of a step, when the range is walked as kStreams adjacent ones side by side.
template <int kStreams>
inline int64_t offset(int u, int64_t bytes) {
  constexpr int kEach = kUnroll / kStreams;
  return u / kEach * (bytes / kStreams) + u % kEach * kVector;
}

template <int kStreams>
uint64_t read(std::byte*, const std::byte* source, int64_t bytes, int64_t passes) {
  __m256i sums[8];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (int64_t i = 0; i < bytes / kStreams; i += kUnroll / kStreams * kVector)
#pragma GCC unroll 16
      for (int u = 0; u < kUnroll; ++u)
        sums[u % 8] = _mm256_xor_si256(sums[u % 8], load(source + i + offset<kStreams>(u, bytes)));
    asm volatile("" ::: "memory");  // the next pass reads again
  }
  for (int u = 1; u < 8; ++u) sums[0] = _mm256_xor_si256(sums[0], sums[u]);
  alignas(64) uint64_t lanes[kVector / 8];
  store(reinterpret_cast<std::byte*>(lanes), sums[0]);
  uint64_t all = 0;
  for (const uint64_t lane : lanes) all ^= lane;
  return all;
}

template <int kStreams>
uint64_t write(std::byte* target, const std::byte*, int64_t bytes, int64_t passes) {
  const __m256i value = _mm256_set1_epi8(1);
  for (int64_t pass = 0; pass < passes; ++pass)
    for (int64_t i = 0; i < bytes / kStreams; i += kUnroll / kStreams * kVector) {
#pragma GCC unroll 16
      for (int u = 0; u < kUnroll; ++u) store(target + i + offset<kStreams>(u, bytes), value);
      asm volatile("" ::: "memory");  // the next pass writes again
    }
  return 0;
}

template <int kStreams>
uint64_t write_nontemporal(std::byte* target, const std::byte*, int64_t bytes, int64_t passes) {
  const __m256i value = _mm256_set1_epi8(1);
  for (int64_t pass = 0; pass < passes; ++pass)
    for (int64_t i = 0; i < bytes / kStreams; i += kUnroll / kStreams * kVector)
#pragma GCC unroll 16
      for (int u = 0; u < kUnroll; ++u) stream(target + i + offset<kStreams>(u, bytes), value);
  _mm_sfence();
  return 0;
}

template <int kStreams>
uint64_t copy(std::byte* target, const std::byte* source, int64_t bytes, int64_t passes) {
  for (int64_t pass = 0; pass < passes; ++pass)
    for (int64_t i = 0; i < bytes / kStreams; i += kUnroll / kStreams * kVector) {
#pragma GCC unroll 16
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t at = i + offset<kStreams>(u, bytes);
        store(target + at, load(source + at));
      }
      asm volatile("" ::: "memory");  // a loop, not a call of memcpy
    }
  return 0;
}

template <int kStreams>
uint64_t copy_nontemporal(std::byte* target, const std::byte* source, int64_t bytes, int64_t passes) {
  for (int64_t pass = 0; pass < passes; ++pass)
    for (int64_t i = 0; i < bytes / kStreams; i += kUnroll / kStreams * kVector)
#pragma GCC unroll 16
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t at = i + offset<kStreams>(u, bytes);
        stream(target + at, load(source + at));
      }
  _mm_sfence();
  return 0;
}

}  // namespace

const StreamKernels kStreamAvx2         = {"AVX2",
                                           {read<1>, write<1>, write_nontemporal<1>, copy<1>, copy_nontemporal<1>}};
const StreamKernels kStreamAvx2FourWays = {
    "AVX2, 4 ranges", {read<4>, write<4>, write_nontemporal<4>, copy<4>, copy_nontemporal<4>}};

}  // namespace fathom::machine
