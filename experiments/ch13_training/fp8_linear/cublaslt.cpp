// out(t, n) = sum_k x(t, k) w(n, k)      by cuBLASLt, in bf16, or in e4m3 with current scaling
//
// flops   2 T N K
// limit   tensor cores
// idea    the library: the fastest of the algorithms that it offers, found by trial
#include <memory>

#include "cuda/cublas.h"
#include "cuda/cublaslt_matmul.h"
#include "kernels/quant/quantize.h"
#include "lab/problem.h"
#include "linear.h"

namespace fathom::lab::fp8_linear {
namespace {

std::shared_ptr<LtMatmul> plan_of(const Linear& p, DType type, const void* x, const void* w,
                                  StreamRef stream) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  if (p.out.size() == 0) return nullptr;
  const auto plan = std::make_shared<LtMatmul>(type, DType::bf16, false, p.tokens, p.outputs, p.inputs);
  FATHOM_EXPECT(static_cast<int64_t>(plan->workspace_bytes()) <= p.cublas_scratch.size(),
                "cuBLASLt wants more than the 32 MiB it was allowed");
  plan->tune(x, w, p.out.data(), p.cublas_scratch.data(), stream);
  return plan;
}

}  // namespace

Call cublaslt_bf16(const Linear& p, StreamRef stream) {
  const auto plan = plan_of(p, DType::bf16, p.x.data(), p.w.data(), stream);
  return [plan](const Linear& q, StreamRef s) {
    if (plan) plan->run(q.x.data(), q.w.data(), q.out.data(), q.cublas_scratch.data(), s);
  };
}

Call cublaslt_fp8(const Linear& p, StreamRef stream) {
  kernels::quantize(p.x, p.codes_of_tensor(p.calibrated_scale), stream);  // not zeros, for the trials
  const auto plan = plan_of(p, DType::fp8_e4m3, p.codes.data(), p.w_of_tensor.data(), stream);
  return [plan](const Linear& q, StreamRef s) {
    if (!plan) return;
    const auto x = q.codes_of_tensor(q.scale());
    kernels::tensor_scale(q.x, x, s);
    kernels::quantize(q.x, x, s);
    plan->set_scales(LtMatmul::TensorScales{x.scale.data(), q.tensor_scale.data()});
    plan->run(q.codes.data(), q.w_of_tensor.data(), q.out.data(), q.cublas_scratch.data(), s);
  };
}

}  // namespace fathom::lab::fp8_linear
