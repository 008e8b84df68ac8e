// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2
// flops   2 n^3
// limit   FMA peak of as many cores as the variant has threads
// idea    a second yardstick: dnnl_sgemm of oneDNN, whose micro-kernel is generated for this CPU at run time
#include "core/thread_pool.h"
#include "experiments/system_library.h"
#include "matmul.h"

namespace fathom::lab::matmul_cpu {
namespace {

using Sgemm = int (*)(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                      const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
                      int64_t ldc);

}  // namespace

Launch<MatMul> onednn(const MatMul& p, Context& context) {
  const SystemLibrary library("libdnnl.so.2");
  const auto sgemm       = library.function<Sgemm>("dnnl_sgemm");
  const auto set_threads = library.function<void (*)(int)>("omp_set_num_threads");  // of its OpenMP runtime
  const Launch<MatMul> launch = [=](const MatMul& q, Context& c) {
    const int64_t n = q.n;
    if (n == 0) return;             // as for OpenBLAS
    set_threads(c.pool.threads());  // on every call: all variants share one library
    const int status = sgemm('N', 'N', n, n, n, 1.0f, q.a.data(), n, q.b.data(), n, 0.0f, q.out.data(), n);
    FATHOM_EXPECT(status == 0, "dnnl_sgemm refused the product");
  };
  return warm_up(launch, p, context);
}

}  // namespace fathom::lab::matmul_cpu
