// y = A x                       z nonzeros in compressed sparse rows, fp32 values and int32 columns
//
// bytes   8 z + 4 n
// flops   2 z
// limit   read bandwidth; one running sum takes an FMA's latency for each nonzero, and that comes first
// idea    the loop of the textbook: a list of columns beside the values, and no zero is touched
#include "sparse_matrix.h"

namespace fathom::lab::sparse_matvec_cpu {

void csr(const SparseMatrix& p, Context&) {
  const float* value    = p.value.data();
  const int32_t* column = p.column.data();
  const float* x        = p.x.data();
  for (int64_t i = 0; i < p.n; ++i) {
    const int32_t begin = p.row_begin(i), end = p.row_begin(i + 1);
    float sum = 0;
    for (int32_t k = begin; k < end; ++k) sum += value[k] * x[column[k]];
    p.out(i) = sum;
  }
}

}  // namespace fathom::lab::sparse_matvec_cpu
