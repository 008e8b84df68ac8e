// out = in(i) > t ascending in i, then in(i) <= t descending in i                       n elements, fp32
//
// bytes   8 n    4 n read + 4 n written
// flops   0; n comparisons
// limit   memory bandwidth of the level that holds both arrays
// idea    the same for 8 elements at a time. The 8 comparisons, as a number of 8 bits, choose a permutation
//         that partitions the register; it is stored whole at the front and whole at the back, and the count
//         of ones says how far each end moves. While 16 elements are left, neither store overwrites final
//         results of the other.
#include <immintrin.h>

#include <array>
#include <bit>

#include "partition.h"

namespace fathom::lab::branch_predication {
namespace {

constexpr int64_t kLanes = 8;

// Row m: the lanes whose bit in m is set, ascending, then the others, descending; one byte each.
using Permutations              = std::array<std::array<uint8_t, kLanes>, 1 << kLanes>;
constexpr Permutations kLanesOf = [] {
  Permutations rows{};
  for (unsigned m = 0; m < rows.size(); ++m) {
    size_t front = 0, back = kLanes;
    for (uint8_t lane = 0; lane < kLanes; ++lane) rows[m][m >> lane & 1 ? front++ : --back] = lane;
  }
  return rows;
}();

}  // namespace

void compressed(const Partition& p, Context&) {
  const int64_t n         = p.in.extent(0);
  const float threshold   = p.threshold;
  const __m256 thresholds = _mm256_set1_ps(threshold);
  const float* in         = p.in.data();
  float* front            = p.out.data();
  float* back             = p.out.data() + n;
  int64_t i               = 0;
  for (; n - i >= 2 * kLanes; i += kLanes) {
    const __m256 x    = _mm256_loadu_ps(in + i);
    const auto above  = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(x, thresholds, _CMP_GT_OQ)));
    const __m128i row = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kLanesOf[above].data()));
    const __m256 separated = _mm256_permutevar8x32_ps(x, _mm256_cvtepu8_epi32(row));
    _mm256_storeu_ps(front, separated);
    _mm256_storeu_ps(back - kLanes, separated);
    front += std::popcount(above);
    back -= kLanes - std::popcount(above);
  }
  for (; i < n; ++i) {
    const float x       = in[i];
    const int64_t above = x > threshold;
    *front              = x;
    back[-1]            = x;
    front += above;
    back -= 1 - above;
  }
}

}  // namespace fathom::lab::branch_predication
