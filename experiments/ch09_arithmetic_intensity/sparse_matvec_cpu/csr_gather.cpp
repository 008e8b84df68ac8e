// y = A x                       z nonzeros in compressed sparse rows, fp32 values and int32 columns
//
// bytes   8 z + 4 n
// flops   2 z
// limit   read bandwidth; a gather loads its eight numbers one after the other, as eight loads would
// idea    eight nonzeros at once: vectors of values and columns, and the instruction that fetches by index
#include <immintrin.h>

#include "sparse_matrix.h"
#include "sum_of_lanes.h"

namespace fathom::lab::sparse_matvec_cpu {

void csr_gather(const SparseMatrix& p, Context&) {
  constexpr int32_t kLanes = 8, kChains = 2;
  const float* value    = p.value.data();
  const int32_t* column = p.column.data();
  const float* x        = p.x.data();
  for (int64_t i = 0; i < p.n; ++i) {
    const int32_t end   = p.row_begin(i + 1);
    int32_t k           = p.row_begin(i);
    __m256 sum[kChains] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    const auto add      = [&](int32_t at, __m256& to) {
      const __m256i columns = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(column + at));
      to = _mm256_fmadd_ps(_mm256_loadu_ps(value + at), _mm256_i32gather_ps(x, columns, sizeof(float)), to);
    };
    for (; k + kChains * kLanes <= end; k += kChains * kLanes) {
      add(k, sum[0]);
      add(k + kLanes, sum[1]);
    }
    if (k + kLanes <= end) {
      add(k, sum[0]);
      k += kLanes;
    }
    float rest = 0;
    for (; k < end; ++k) rest += value[k] * x[column[k]];
    p.out(i) = sum_of_lanes(_mm256_add_ps(sum[0], sum[1])) + rest;
  }
}

}  // namespace fathom::lab::sparse_matvec_cpu
