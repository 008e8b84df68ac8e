// y = A x                       z nonzeros in compressed sparse rows, fp32 values and int32 columns
//
// bytes   8 z + 4 n
// flops   2 z
// limit   read bandwidth; three loads a nonzero, two of them of floats, of which a core starts two a cycle
// idea    four running sums, so that a nonzero does not wait for the one before
#include "sparse_matrix.h"

namespace fathom::lab::sparse_matvec_cpu {

void csr_chains(const SparseMatrix& p, Context&) {
  const float* value    = p.value.data();
  const int32_t* column = p.column.data();
  const float* x        = p.x.data();
  const auto product    = [&](int32_t k) { return value[k] * x[column[k]]; };
  for (int64_t i = 0; i < p.n; ++i) {
    const int32_t end = p.row_begin(i + 1);
    int32_t k         = p.row_begin(i);
    float a = 0, b = 0, c = 0, d = 0;
    for (; k + 4 <= end; k += 4) {
      a += product(k);
      b += product(k + 1);
      c += product(k + 2);
      d += product(k + 3);
    }
    for (; k < end; ++k) a += product(k);
    p.out(i) = (a + b) + (c + d);
  }
}

}  // namespace fathom::lab::sparse_matvec_cpu
