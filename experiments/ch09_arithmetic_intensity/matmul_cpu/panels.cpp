#include "panels.h"

#include <algorithm>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither: Highway would add code for SSSE3 and SSE4
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "experiments/ch09_arithmetic_intensity/matmul_cpu/panels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h: the register tile depends on the target.
#include "experiments/ch09_arithmetic_intensity/matmul_cpu/micro_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::lab::matmul_cpu::HWY_NAMESPACE {

constexpr int64_t kLine = 16;  // floats in a cache line

void pack_a(const float* a, int64_t a_row, int64_t m, int64_t k, float* HWY_RESTRICT packed) {
  for (int64_t i0 = 0; i0 < m; i0 += kMr, packed += kMr * k) {
    const int64_t rows = std::min(kMr, m - i0);
    if (rows == kMr) {
      const float* from = a + i0 * a_row;
      for (int64_t l = 0; l < k; ++l)
        for (int64_t i = 0; i < kMr; ++i) packed[l * kMr + i] = from[i * a_row + l];
    } else {
      for (int64_t l = 0; l < k; ++l)
        for (int64_t i = 0; i < kMr; ++i) packed[l * kMr + i] = i < rows ? a[(i0 + i) * a_row + l] : 0.0f;
    }
  }
}

void pack_b(const float* b, int64_t b_row, int64_t k, int64_t n, float* HWY_RESTRICT packed) {
  const Lanes d;
  for (int64_t l = 0; l < k; ++l) {
    const float* from = b + l * b_row;
    int64_t j         = 0;
    for (; j + kNr <= n; j += kNr) {
      float* to = packed + j * k + l * kNr;
      hn::Store(hn::LoadU(d, from + j), d, to);
      hn::Store(hn::LoadU(d, from + j + kNr / 2), d, to + kNr / 2);
    }
    if (j < n) {
      float* to = packed + j * k + l * kNr;
      std::fill(std::copy(from + j, from + n, to), to + kNr, 0.0f);
    }
  }
}

void multiply(int64_t m, int64_t n, int64_t k, const float* packed_a, const float* packed_b, float* c,
              int64_t c_row, bool add) {
  HWY_ALIGN float rim[kMr * kNr];
  for (int64_t j = 0; j < n; j += kNr)
    for (int64_t i = 0; i < m; i += kMr) {
      const float* a = packed_a + i * k;
      const float* b = packed_b + j * k;
      float* tile    = c + i * c_row + j;
      // The next micro-panel of B is in L3, with the rest of the panel: each tile fetches its share of it.
      for (int64_t l = i * k / m * kNr; l < std::min(i + kMr, m) * k / m * kNr; l += kLine)
        hwy::Prefetch(b + k * kNr + l);
      if (i + kMr <= m && j + kNr <= n) {
        micro_kernel(k, a, 1, kMr, b, kNr, tile, c_row, add);
        continue;
      }
      micro_kernel(k, a, 1, kMr, b, kNr, rim, kNr, false);
      for (int64_t r = 0; r < std::min(kMr, m - i); ++r)
        for (int64_t s = 0; s < std::min(kNr, n - j); ++s)
          tile[r * c_row + s] = (add ? tile[r * c_row + s] : 0.0f) + rim[r * kNr + s];
    }
}

Panels panels() {
  return {.rows = kMr, .columns = kNr, .pack_a = pack_a, .pack_b = pack_b, .multiply = multiply};
}

}  // namespace fathom::lab::matmul_cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::lab::matmul_cpu {

HWY_EXPORT(panels);

const Panels& panels() {
  static const Panels chosen = HWY_DYNAMIC_DISPATCH(panels)();
  return chosen;
}

}  // namespace fathom::lab::matmul_cpu
#endif
