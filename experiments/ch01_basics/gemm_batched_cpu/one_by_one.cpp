// out[p] = a[p] b[p]          batch products of size x size, fp32
//
// bytes   12 batch size^2   8 read + 4 written for each element
// flops   2 batch size^3
// limit   FMA peak of one core; not reached by code for any size: loops of unknown length, and a row of out
//         that goes through memory
// idea    a loop over the batch that calls a general routine
#include "gemm.h"
#include "gemm_batched.h"

namespace fathom::lab::gemm_batched_cpu {

void one_by_one(const GemmBatched& q, Context&) {
  const int64_t n = q.size, step = n * n;
  for (int64_t p = 0; p < q.batch; ++p)
    gemm(n, n, n, q.a.data() + p * step, n, q.b.data() + p * step, n, q.out.data() + p * step, n);
}

}  // namespace fathom::lab::gemm_batched_cpu
