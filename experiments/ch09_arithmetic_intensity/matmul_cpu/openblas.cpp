// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2
// flops   2 n^3
// limit   FMA peak of as many cores as the variant has threads
// idea    the yardstick: cblas_sgemm of OpenBLAS, the algorithm of packed with a micro-kernel in assembly
#include "core/thread_pool.h"
#include "experiments/system_library.h"
#include "matmul.h"

namespace fathom::lab::matmul_cpu {
namespace {

constexpr int kRowMajor = 101, kNoTrans = 111;  // of cblas.h
using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a,
                       int lda, const float* b, int ldb, float beta, float* c, int ldc);

}  // namespace

Launch<MatMul> openblas(const MatMul& p, Context& context) {
  const SystemLibrary library("libopenblas.so.0");
  const auto sgemm            = library.function<Sgemm>("cblas_sgemm");
  const auto set_threads      = library.function<void (*)(int)>("openblas_set_num_threads");
  const Launch<MatMul> launch = [=](const MatMul& q, Context& c) {
    const int n = static_cast<int>(q.n);
    if (n == 0) return;             // OpenBLAS rejects a leading dimension of 0
    set_threads(c.pool.threads());  // on every call: all variants share one library
    sgemm(kRowMajor, kNoTrans, kNoTrans, n, n, n, 1.0f, q.a.data(), n, q.b.data(), n, 0.0f, q.out.data(), n);
  };
  return warm_up(launch, p, context);
}

}  // namespace fathom::lab::matmul_cpu
