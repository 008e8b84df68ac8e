#include <algorithm>

#include "kernels/gemm/linear_int8.h"
#include "kernels/moe/experts_int8.h"
#include "model/ops.h"

namespace fathom::model {
namespace {

int64_t widest_input(const StepShape& s) { return std::max(s.hidden, s.heads * s.head_dim); }

int64_t scratch_bytes_but_experts(const StepShape& s) {
  return std::max({kernels::linear_cpu_scratch_bytes(s.rows, widest_input(s), s.threads),
                   kernels::linear_int8_cpu_scratch_bytes(s.rows, widest_input(s), s.threads),
                   kernels::attention_cpu_scratch_bytes(s.heads, s.head_dim, s.threads)});
}

void linear_int8_where_weights_are(View<const float, 2> x, const kernels::DenseMatrix& w,
                                   View<const bf16, 1> bias, kernels::Output output, View<float, 2> y,
                                   const Execution& on) {
  if (const auto* int8 = std::get_if<kernels::Int8Weights>(&w))
    kernels::linear_int8_cpu(x, *int8, bias, output, y, on);
  else
    kernels::linear_cpu(x, w, bias, output, y, on);
}

}  // namespace

// Ops that take a hundredth of a step or less use the reference.
const Ops& cpu_ops() {
  static const Ops ops = {.embedding       = kernels::embedding_reference,
                          .rmsnorm         = kernels::rmsnorm_cpu,
                          .linear          = kernels::linear_cpu,
                          .linear_int8     = kernels::linear_int8_cpu,
                          .rope_table      = kernels::rope_table_reference,
                          .rope            = kernels::rope_cpu,
                          .kv_store        = kernels::kv_store_reference,
                          .window_kv_store = kernels::kv_store_reference,
                          .attention       = kernels::attention_cpu,
                          .router          = kernels::router_reference,
                          .experts         = kernels::experts_cpu,
                          .scratch_bytes   = [](const StepShape& s) -> int64_t {
                            return std::max(
                                  scratch_bytes_but_experts(s),
                                  kernels::experts_cpu_scratch_bytes(s.rows, s.top_k, s.experts, s.hidden,
                                                                     s.intermediate, s.threads));
                          }};
  return ops;
}

Ops with_int8_activations(Ops ops) {
  ops.linear        = linear_int8_where_weights_are;
  ops.experts       = kernels::experts_int8_cpu;
  ops.scratch_bytes = [](const StepShape& s) -> int64_t {
    return std::max(
        {scratch_bytes_but_experts(s), kernels::experts_int8_cpu_scratch_bytes(
                                           s.rows, s.top_k, s.experts, s.hidden, s.intermediate, s.threads)});
  };
  return ops;
}

}  // namespace fathom::model
