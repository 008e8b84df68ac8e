// out[p] = a[p] b[p]          batch products of size x size, fp32
//
// bytes   12 batch size^2
// flops   2 batch size^3
// limit   FMA peak of one core; not reached: each call checks arguments, chooses a kernel and packs small
//         matrices
// idea    the yardstick: cblas_sgemm of OpenBLAS for every product (0.3.21 has no batched entry)
#include "experiments/system_library.h"
#include "gemm_batched.h"

namespace fathom::lab::gemm_batched_cpu {
namespace {

constexpr int kRowMajor = 101, kNoTrans = 111;  // of cblas.h
using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a,
                       int lda, const float* b, int ldb, float beta, float* c, int ldc);

}  // namespace

Launch<GemmBatched> openblas(const GemmBatched&, Context&) {
  const SystemLibrary library("libopenblas.so.0");
  const auto sgemm = library.function<Sgemm>("cblas_sgemm");
  library.function<void (*)(int)>("openblas_set_num_threads")(1);
  return [sgemm](const GemmBatched& q, Context&) {
    const int n        = static_cast<int>(q.size);
    const int64_t step = q.size * q.size;
    if (n == 0) return;  // cuBLAS rejects a leading dimension of 0
    for (int64_t p = 0; p < q.batch; ++p)
      sgemm(kRowMajor, kNoTrans, kNoTrans, n, n, n, 1.0f, q.a.data() + p * step, n, q.b.data() + p * step, n,
            0.0f, q.out.data() + p * step, n);
  };
}

}  // namespace fathom::lab::gemm_batched_cpu
