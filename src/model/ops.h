// The ops of a forward pass, as a table: the model calls through it, and a backend fills it. Signatures and
// contracts are those of the ops' headers.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/experts.h"
#include "kernels/linear.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/router.h"

namespace fathom::model {

// What a forward pass is at most, for the memory it takes.
struct StepShape {
  int64_t rows = 0, hidden = 0, intermediate = 0, heads = 0, head_dim = 0, experts = 0, top_k = 0;
  int threads = 1;
};

struct Ops {
  decltype(&kernels::embedding_reference) embedding;
  decltype(&kernels::rmsnorm_reference) rmsnorm;
  decltype(&kernels::linear_reference) linear;
  decltype(&kernels::rope_table_reference) rope_table;
  decltype(&kernels::rope_reference) rope;
  decltype(&kernels::kv_store_reference) kv_store;
  decltype(&kernels::attention_reference) attention;
  decltype(&kernels::router_reference) router;
  decltype(&kernels::experts_reference) experts;
  int64_t (*scratch_bytes)(const StepShape& shape);
};

const Ops& reference_ops();  // plain C++, one thread: what everything else is compared with
const Ops& cpu_ops();        // AVX2 or AVX-512, chosen at run time, on all threads

}  // namespace fathom::model
