#include "model/ops.h"

namespace fathom::model {

const Ops& reference_ops() {
  static const Ops ops = {.embedding       = kernels::embedding_reference,
                          .rmsnorm         = kernels::rmsnorm_reference,
                          .linear          = kernels::linear_reference,
                          .linear_int8     = kernels::linear_int8_reference,
                          .rope_table      = kernels::rope_table_reference,
                          .rope            = kernels::rope_reference,
                          .kv_store        = kernels::kv_store_reference,
                          .window_kv_store = kernels::kv_store_reference,
                          .attention       = kernels::attention_reference,
                          .router          = kernels::router_reference,
                          .experts         = kernels::experts_reference,
                          .scratch_bytes   = [](const StepShape&) -> int64_t { return 0; }};
  return ops;
}

}  // namespace fathom::model
