// Views of gpt-oss's weights by role, for three layouts of a checkpoint:
//
//   hf_mxfp4   Hugging Face's names, experts in MXFP4
//   hf_bf16    Hugging Face's names, experts in BF16 and transposed, [E, in, out]: fine-tuned checkpoints
//   original   the names of the `original/` folder, experts in MXFP4, one fused q, k, v matrix
//
// In all three, views of matrices are [out, in] and those of experts [E, out, in]; strides hide the
// difference. Where the layout says BF16, a fine-tune saved as FP32 or FP16 is rounded to it.
//
// In each, the matrices of attention and of the (un)embedding may be in int8 (Config::int8_dense): `NAME`
// then holds the values, I8 [out, in], and `NAME_scale` the scales, BF16 [out, ceil(in / 32)].
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/view.h"
#include "kernels/gemm/dense_matrix.h"
#include "kernels/moe/experts.h"
#include "model/config.h"
#include "model/safetensors.h"

namespace fathom::model {

enum class Layout { hf_mxfp4, hf_bf16, original };

const char* name(Layout layout);

using kernels::DenseMatrix;
using kernels::ExpertMatrices;  // hf_bf16: strides {in out, 1, out}
using kernels::Mxfp4Matrices;
using NormWeights = std::variant<View<const bf16, 1>, View<const float, 1>>;

struct LayerWeights {
  NormWeights attn_norm;  // [H]
  DenseMatrix q, k, v;    // [heads Dh, H]
  View<const bf16, 1> q_bias, k_bias, v_bias;
  View<const bf16, 1> sinks;  // [heads]
  DenseMatrix out;            // [H, heads Dh]
  View<const bf16, 1> out_bias;
  NormWeights mlp_norm;        // [H]
  View<const bf16, 2> router;  // [E, H]
  View<const bf16, 1> router_bias;
  ExpertMatrices mlp1;            // [E, 2I, H], even rows gate, odd rows up
  View<const bf16, 2> mlp1_bias;  // [E, 2I]
  ExpertMatrices mlp2;            // [E, H, I]
  View<const bf16, 2> mlp2_bias;  // [E, H]
};

struct Weights {
  Layout layout = Layout::hf_mxfp4;
  DenseMatrix embedding;    // [V, H]
  DenseMatrix unembedding;  // [V, H]
  NormWeights norm;         // [H]
  std::vector<LayerWeights> layers;
  int64_t first_expert    = 0;  // of the router's, the first whose matrices are here (model/shard.h)
  int64_t rounded_tensors = 0;  // of the file that are FP32 or FP16 where the ops compute with BF16
  std::vector<std::shared_ptr<const void>>
      converted;  // the memory of tensors that the file has in another type
};

// Finds all weights and checks dtypes and shapes. Also reads every scale of the experts, 3 % of the file's
// bytes, to reject NaNs. The views point into `tensors`, or into `converted`: FP32 and FP16 are rounded to
// BF16 (to nearest even), but a norm is kept exact, as FP32. Unknown tensors are ignored; layers beyond the
// config's number of layers are an error.
Result<Weights> find_weights(const Config& config, const Safetensors& tensors);

// The layout of a checkpoint that find_weights() accepts; the same errors. Converts nothing.
Result<Layout> find_layout(const Config& config, const Safetensors& tensors);

}  // namespace fathom::model
