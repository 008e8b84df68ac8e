// y = A x                       n x n, fp32, all places stored
//
// bytes   4 n^2
// flops   2 n^2, most of them with a zero
// limit   read bandwidth of the level that holds the matrix
// idea    baseline: each row from end to end, in eight vectors of sums; what is zero is not looked at
#include "experiments/ch09_arithmetic_intensity/matvec.h"
#include "sparse_matrix.h"

namespace fathom::lab::sparse_matvec_cpu {

void dense(const SparseMatrix& p, Context&) { matvec(p.dense, p.x.data(), p.out.data()); }

}  // namespace fathom::lab::sparse_matvec_cpu
