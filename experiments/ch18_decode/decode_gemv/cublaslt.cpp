// out(m, t, n) = sum_k x(m, t, k) w(m, n, k)      bf16, sums in fp32
//
// bytes   2 M N K of weights, once
// flops   2 M T N K, by the tensor cores
// limit   memory bandwidth. H200: 118 MB, 4 matrices of 5120 x 2880, are 26 us at 4.55 TB/s
// idea    the library: cuBLASLt with its heuristic's first choice of kernel, a call for each matrix
#include <memory>
#include "cuda/cublas.h"
#include "cuda/cublaslt_matmul.h"
#include "lab/problem.h"
#include "projection.h"

namespace fathom::lab::decode_gemv {

Call cublaslt(const Projection& p, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  if (p.out.size() == 0) return [](const Projection&, StreamRef) {};
  const auto plan = std::make_shared<LtMatmul>(DType::bf16, DType::fp32, false, p.rows, p.outputs, p.inputs);
  FATHOM_EXPECT(static_cast<int64_t>(plan->workspace_bytes()) <= p.scratch.bytes(),
                "cuBLASLt wants more than the 32 MiB it was allowed");
  return [plan](const Projection& q, StreamRef stream) {
    for (int64_t m = 0; m < q.matrices; ++m)
      plan->run(&q.x(m, 0, 0), &q.w(m, 0, 0), &q.out(m, 0, 0), q.scratch.data(), stream);
  };
}

}  // namespace fathom::lab::decode_gemv
