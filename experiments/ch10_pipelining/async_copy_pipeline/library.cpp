// out(t, r) = sum_d x(t, d) a(d, r)         T tokens, D numbers each, rank 16, fp32
//
// bytes   4 T D of x, once, and 64 T of the result
// flops   32 T D
// limit   DRAM bandwidth. H200: 262144 tokens of 1024 are 1.09 GB, 0.27 ms at the 3.98 TB/s of a copy
// idea    the yardstick: cublasSgemm, fp32 products without tf32
#include <memory>

#include "library.h"

#include "cuda/cublas.h"
#include "lab/problem.h"

namespace fathom::lab::async_copy_pipeline {

std::function<void(const LoraShrink&, StreamRef)> library(const LoraShrink&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  return [handle](const LoraShrink& p, StreamRef stream) {
    const int tokens = static_cast<int>(p.x.extent(0)), width = static_cast<int>(p.x.extent(1));
    if (tokens == 0) return;
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    // cuBLAS counts column-major: it multiplies the transposes, in the other order.
    const float one = 1, zero = 0;
    FATHOM_CUBLAS(cublas()->sgemm(handle.get(), CUBLAS_OP_N, CUBLAS_OP_N, LoraShrink::kRank, tokens, width,
                                  &one, p.a.data(), LoraShrink::kRank, p.x.data(), width, &zero, p.out.data(),
                                  LoraShrink::kRank));
  };
}

}  // namespace fathom::lab::async_copy_pipeline
