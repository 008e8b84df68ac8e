// A model's weights as the forward pass on CPUs reads them (vLLM: process_weights_after_loading): norms in
// FP32, and experts in BF16 by rows of outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/buffer.h"
#include "core/dtype.h"
#include "core/thread_pool.h"
#include "kernels/moe/experts.h"
#include "model/config.h"
#include "model/unembedding_screen.h"
#include "model/weights.h"

namespace fathom::model {

struct ProcessedWeights {
  // The memory that `from` views must outlive it. Copies experts in BF16 that are stored as [E, in, out].
  // `screening`: and an unembedding in BF16 as int8.
  ProcessedWeights(const Config& config, const Weights& from, ThreadPool& threads, bool screening = false);

  struct Layer {
    Buffer<float> attn_norm, mlp_norm;
    std::vector<Buffer<bf16>> transposed;  // copies of experts
    kernels::ExpertWeights experts;
  };

  Weights weights;
  Buffer<float> norm;
  std::vector<Layer> layers;

  std::unique_ptr<UnembeddingScreen> screen;  // null: there is none

  int64_t copied_bytes() const;  // of experts, and of the screen
};

}  // namespace fathom::model
