// logits(t, e) = sum_d x(t, d) w(e, d)        bf16, sums in fp32, 128 experts
//
// bytes   2 T D of x, once; from L2 also w once for each tile: 256 D
// flops   256 T D
// limit   DRAM bandwidth. H200: 65536 tokens of 2880 are 377 MB of x and 17 MB of logits, 0.09 ms at 4.5 TB/s
// idea    cuBLASLt, whose kernels for such shapes are persistent and have the same roles
#include <memory>

#include "cuda/cublas.h"
#include "cuda/cublaslt_matmul.h"
#include "lab/problem.h"
#include "router.h"

namespace fathom::lab::warp_specialization {

Call library(const Router& p, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  if (p.out.size() == 0) return [](const Router&, StreamRef) {};
  const auto product = std::make_shared<LtMatmul>(DType::bf16, DType::bf16, false, p.x.extent(0),
                                                  Router::kExperts, p.x.extent(1));
  FATHOM_EXPECT(static_cast<int64_t>(product->workspace_bytes()) <= p.workspace.bytes(),
                "cuBLASLt wants more than the 32 MiB it was allowed");
  return [product](const Router& q, StreamRef stream) {
    product->run(q.x.data(), q.w.data(), q.out.data(), q.workspace.data(), stream);
  };
}

}  // namespace fathom::lab::warp_specialization
