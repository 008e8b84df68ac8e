// out(m, t, n) = sum_k x(m, t, k) w(m, n, k)      bf16, sums in fp32
//
// bytes   2 M N K of weights, once
// flops   2 M T N K, by the tensor cores
// limit   memory bandwidth. H200: 268 MB, 8 matrices of 4096 x 4096, are 59 us at 4.55 TB/s
// idea    the library: cuBLASLt with its heuristic's first choice of kernel, a call for each matrix
#include <memory>

#include "cuda/cublas.h"
#include "cuda/cublaslt_matmul.h"
#include "lab/problem.h"
#include "projection.h"

namespace fathom::lab::int4_gemv_gpu {

Call cublaslt(const Projection& p, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  if (p.out.size() == 0) return [](const Projection&, StreamRef) {};
  const auto plan = std::make_shared<LtMatmul>(DType::bf16, DType::fp32, false, p.rows, p.weights.outputs,
                                               p.weights.inputs);
  FATHOM_EXPECT(static_cast<int64_t>(plan->workspace_bytes()) <= p.scratch.bytes(),
                "cuBLASLt wants more than the 32 MiB it was allowed");
  return [plan](const Projection& q, StreamRef stream) {
    const View<const bf16, 3> w = q.weights.in_bf16(q.memory.data());
    for (int64_t m = 0; m < q.weights.matrices; ++m)
      plan->run(&q.x(m, 0, 0), &w(m, 0, 0), &q.out(m, 0, 0), q.scratch.data(), stream);
  };
}

}  // namespace fathom::lab::int4_gemv_gpu
