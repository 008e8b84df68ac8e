// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    the library
#include "experiments/labs/matmul/cublaslt.h"

#include <memory>

#include "cuda/cublas.h"
#include "cuda/cublaslt_matmul.h"
#include "lab/problem.h"

namespace fathom::lab::matmul {
namespace {

Call call_of(const Gemm& p, StreamRef stream, bool tune) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  if (p.out.size() == 0) return [](const Gemm&, StreamRef) {};
  const auto plan = std::make_shared<LtMatmul>(DType::bf16, DType::bf16, false, p.m, p.n, p.k);
  FATHOM_EXPECT(static_cast<int64_t>(plan->workspace_bytes()) <= p.scratch.bytes(),
                "cuBLASLt wants more than the 32 MiB it was allowed");
  if (tune) plan->tune(p.a.data(), p.b.data(), p.out.data(), p.scratch.data(), stream);
  return [plan](const Gemm& q, StreamRef s) {
    plan->run(q.a.data(), q.b.data(), q.out.data(), q.scratch.data(), s);
  };
}

}  // namespace

Call cublaslt(const Gemm& p, StreamRef stream) { return call_of(p, stream, false); }
Call cublaslt_fastest(const Gemm& p, StreamRef stream) { return call_of(p, stream, true); }

}  // namespace fathom::lab::matmul
