// y = rmsnorm(x) in bf16; logits = router y + bias; the 4 largest, and the softmax over those
//
// bytes   6 T H, and y read once more by the product
// flops   2 E T H
// limit   DRAM bandwidth. H200: 4096 rows of 2880 are 71 MB, 18 us at the 3.98 TB/s of a copy;
//         of few rows latency
// idea    none yet: a kernel for each step, the product by cuBLASLt
#include <memory>

#include "cuda/cublas.h"
#include "cuda/cublaslt_matmul.h"
#include "lab/problem.h"
#include "routing.h"

namespace fathom::lab::fused_norm_router {

Call separate(const Routing& p, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  if (p.rows == 0) return [](const Routing&, StreamRef) {};
  const auto product = std::make_shared<LtMatmul>(DType::bf16, DType::fp32, false, p.rows, kExperts, p.width);
  FATHOM_EXPECT(static_cast<int64_t>(product->workspace_bytes()) <= p.scratch.bytes(),
                "cuBLASLt wants more than the 32 MiB it was allowed");
  return [product](const Routing& q, StreamRef stream) {
    normalize(q, stream);
    product->run(q.y.data(), q.router.data(), q.logits.data(), q.scratch.data(), stream);
    choose(q, stream);
  };
}

}  // namespace fathom::lab::fused_norm_router
