// y = A x                       z nonzeros, fp32, and a bit for each place
//
// bytes   4 z + n^2 / 8
// flops   2 n^2, most of them with a zero
// limit   read bandwidth; some fifteen instructions for eight places come first, whatever the density
// idea    the cheapest code for a pattern of a few percent and more. It saves bytes, and no arithmetic: the
//         nonzeros of eight places are spread over a vector, zeros between them, and multiplied with eight
//         neighbours of x. Nothing is fetched by an index.
#include <immintrin.h>

#include <bit>

#include "sparse_matrix.h"
#include "sum_of_lanes.h"

namespace fathom::lab::sparse_matvec_cpu {
namespace {

// The next nonzeros in the lanes whose bits are set, 0 in the others.
__m256 spread(const float* next, unsigned bits) {
  const uint64_t lanes = _pdep_u64(bits, 0x0101010101010101) * 0xFF;  // a byte of ones for each bit
  const uint64_t which = _pdep_u64(0x0706050403020100, lanes);        // the k-th set lane takes next[k]
  const __m256i from   = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(which)));
  const __m256i keep   = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(lanes)));
  return _mm256_and_ps(_mm256_permutevar8x32_ps(_mm256_loadu_ps(next), from), _mm256_castsi256_ps(keep));
}

}  // namespace

void bitmap(const SparseMatrix& p, Context&) {
  const int64_t bytes = p.bits.extent(1);
  const float* next   = p.value.data();
  const float* x      = p.x.data();
  for (int64_t i = 0; i < p.n; ++i) {
    const uint8_t* bits = &p.bits(i, 0);
    __m256 even = _mm256_setzero_ps(), odd = even;
    const auto add = [&](int64_t b, __m256& sum) {
      sum = _mm256_fmadd_ps(spread(next, bits[b]), _mm256_loadu_ps(x + 8 * b), sum);
      next += std::popcount(bits[b]);
    };
    int64_t b = 0;
    for (; b + 2 <= bytes; b += 2) {
      add(b, even);
      add(b + 1, odd);
    }
    if (b < bytes) add(b, even);
    p.out(i) = sum_of_lanes(_mm256_add_ps(even, odd));
  }
}

}  // namespace fathom::lab::sparse_matvec_cpu
