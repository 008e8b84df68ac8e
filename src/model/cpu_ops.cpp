#include <algorithm>

#include "kernels/moe/experts_int8.h"
#include "model/ops.h"

namespace fathom::model {
namespace {

int64_t scratch_bytes_but_experts(const StepShape& s) {
  const int64_t widest = std::max(s.hidden, s.heads * s.head_dim);
  return std::max(kernels::linear_cpu_scratch_bytes(s.rows, widest, s.threads),
                  kernels::attention_cpu_scratch_bytes(s.heads, s.head_dim, s.threads));
}

}  // namespace

// Ops that take a hundredth of a step or less use the reference.
const Ops& cpu_ops() {
  static const Ops ops = {.embedding       = kernels::embedding_reference,
                          .rmsnorm         = kernels::rmsnorm_cpu,
                          .linear          = kernels::linear_cpu,
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
  ops.experts       = kernels::experts_int8_cpu;
  ops.scratch_bytes = [](const StepShape& s) -> int64_t {
    return std::max(scratch_bytes_but_experts(s),
                    kernels::experts_int8_cpu_scratch_bytes(s.rows, s.top_k, s.experts, s.hidden,
                                                            s.intermediate, s.threads));
  };
  return ops;
}

}  // namespace fathom::model
