// The loop of all variants. They differ in which suspects it has, and in when a row leaves the list.
#pragma once

#include <immintrin.h>

#include <cstdio>
#include <cstring>

#include "memory.h"

namespace fathom::lab::decaying_state {

struct Suspects {
  bool subnormals = true;  // the processor computes with subnormal numbers, as it does unless told otherwise
  bool power_of_two_rows = true;  // rows of the trace begin 4096 bytes apart
  bool flush_each_token  = true;  // out(t) leaves the stream's buffer at once
  float kept_above       = 0;     // a row stays in the list while one of its magnitudes is above
};

// While it lives, operations of this thread take subnormal operands for zero, and return zero for subnormals.
class FlushToZero {
 public:
  explicit FlushToZero(bool flush) : before_(_mm_getcsr()) {
    constexpr unsigned kResults = 1U << 15, kOperands = 1U << 6;  // of MXCSR: FTZ and DAZ
    if (flush) _mm_setcsr(before_ | kResults | kOperands);
  }
  ~FlushToZero() { _mm_setcsr(before_); }
  FlushToZero(const FlushToZero&)            = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  unsigned before_;
};

constexpr int64_t kLanes   = 8;
constexpr int64_t kVectors = Memory::kValues / kLanes;

// Decays the listed rows and adds them to the sums. Returns how many stay in the list.
inline int64_t decay_rows(const Memory& p, int64_t listed, float kept_above, __m256 (&sum)[kVectors]) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  const __m256 bound     = _mm256_set1_ps(kept_above);
  int64_t kept           = 0;
  for (int64_t e = 0; e < listed; ++e) {
    const int32_t key  = p.list(e);
    const __m256 decay = _mm256_set1_ps(p.decay(key));
    __m256 largest     = _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int64_t c = 0; c < kVectors; ++c) {
      float* place     = &p.rows(key, c * kLanes);
      const __m256 row = _mm256_mul_ps(decay, _mm256_loadu_ps(place));
      _mm256_storeu_ps(place, row);
      sum[c]  = _mm256_add_ps(sum[c], row);
      largest = _mm256_max_ps(largest, _mm256_and_ps(magnitude, row));
    }
    const bool stays = _mm256_movemask_ps(_mm256_cmp_ps(largest, bound, _CMP_GT_OQ)) != 0;
    p.list(kept)     = key;
    p.listed(key)    = stays;
    kept += stays;
  }
  return kept;
}

inline void decode(const Memory& p, Suspects suspects) {
  const FlushToZero mode(!suspects.subnormals);
  const int64_t trace_row = Memory::kTraceRow + (suspects.power_of_two_rows ? 0 : Memory::kLine);
  std::fill_n(p.listed.data(), Memory::kKeys, uint8_t{0});
  int64_t listed = 0;
  double updates = 0;

  for (int64_t t = 0; t < p.out.extent(0); ++t) {
    __m256 sum[kVectors];
#pragma GCC unroll 8
    for (int64_t c = 0; c < kVectors; ++c) sum[c] = _mm256_loadu_ps(&p.x(t, c * kLanes));
    updates += static_cast<double>(listed);
    listed = decay_rows(p, listed, suspects.kept_above, sum);

    const int32_t key = p.key(t);
    const bool is_new = p.listed(key) == 0;
    if (is_new) {
      p.list(listed++) = key;
      p.listed(key)    = 1;
    }
#pragma GCC unroll 8
    for (int64_t c = 0; c < kVectors; ++c) {
      float* row         = &p.rows(key, c * kLanes);
      const __m256 value = _mm256_loadu_ps(&p.v(t, c * kLanes));
      _mm256_storeu_ps(row, is_new ? value : _mm256_add_ps(_mm256_loadu_ps(row), value));
      _mm256_storeu_ps(&p.out(t, c * kLanes), _mm256_add_ps(sum[c], value));
    }

    constexpr size_t kBytes = Memory::kValues * sizeof(float);
    std::memcpy(p.trace.data() + t % Memory::kTrace * trace_row, &p.out(t, 0), kBytes);
    std::fwrite(&p.out(t, 0), 1, kBytes, p.sent.get());
    if (suspects.flush_each_token) std::fflush(p.sent.get());
  }
  std::fflush(p.sent.get());
  p.row_updates(0) = updates;
}

}  // namespace fathom::lab::decaying_state
