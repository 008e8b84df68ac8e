// The table of ops of a forward pass: the model calls through it, a backend fills it. Signatures and
// contracts are in the ops' headers.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/rope.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gemm/linear.h"
#include "kernels/gemm/linear_int8.h"
#include "kernels/moe/experts.h"
#include "kernels/moe/router.h"
#include "kernels/norm/rmsnorm.h"

namespace fathom::model {

// Upper bounds of a forward pass, which determine its scratch memory.
struct StepShape {
  int64_t rows = 0, hidden = 0, intermediate = 0, heads = 0, head_dim = 0, experts = 0, top_k = 0;
  int threads = 1;
};

struct Ops {
  decltype(&kernels::embedding_reference) embedding;
  decltype(&kernels::rmsnorm_reference) rmsnorm;
  decltype(&kernels::linear_reference) linear;
  decltype(&kernels::linear_int8_reference) linear_int8;  // of bounds (model/unembedding_screen.h)
  decltype(&kernels::rope_table_reference) rope_table;
  decltype(&kernels::rope_reference) rope;
  decltype(&kernels::kv_store_reference) kv_store;         // of layers of full attention
  decltype(&kernels::kv_store_reference) window_kv_store;  // of layers with a sliding window
  decltype(&kernels::attention_reference) attention;
  decltype(&kernels::router_reference) router;
  decltype(&kernels::experts_reference) experts;
  int64_t (*scratch_bytes)(const StepShape& shape);
};

const Ops& reference_ops();  // plain C++, one thread: the reference of all tests
const Ops& cpu_ops();        // AVX2 or AVX-512, chosen at run time, on all threads

// CPU ops that get the inputs of quantized weights in int8: of the experts, all in MXFP4
// (kernels/moe/experts_int8.h), and of dense matrices in int8 (kernels/gemm/linear_int8.h). Inputs of weights
// in bf16 stay in fp32.
Ops with_int8_activations(Ops ops);

}  // namespace fathom::model
