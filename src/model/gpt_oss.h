// gpt-oss's forward pass (specs/gpt-oss.md section 2), over a table of ops: tokens of several sequences in,
// logits out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/execution.h"
#include "core/view.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/ops.h"
#include "model/weights.h"

namespace fathom::model {

// One step: some rows of some sequences, prefill and decode alike. SequenceRows::pages are those of the
// layers that see all.
struct Batch {
  View<const int32_t, 1> tokens;  // [T], in the vocabulary
  kernels::SequenceRows rows;
  View<const int32_t, 2> window_pages;  // [S, P] of the sliding layers
};

class GptOss {
 public:
  // `weights` (and what they are views of) and `threads` must outlive it. Its own memory is what `max_rows`
  // rows and `max_logit_rows` rows of logits need; experts in bf16 are kept a second time, transposed.
  GptOss(const Config& config, const Weights& weights, const Ops& ops, int64_t max_rows,
         int64_t max_logit_rows, ThreadPool& threads);

  // Runs all layers and leaves keys and values of the rows in `kv`. T at most max_rows; positions before the
  // batch's are in `kv`.
  void forward(const Batch& batch, const KvCache& kv);

  // Of rows of the last batch: logits [R, V], R at most max_logit_rows.
  void logits(View<const int32_t, 1> rows, View<float, 2> logits);

  // How many rows each expert has had so far, [layers, E].
  View<const int64_t, 2> expert_load() const {
    return expert_load_.as({config_.num_hidden_layers, config_.num_local_experts});
  }

 private:
  struct Layer {
    const LayerWeights* weights;
    Buffer<float> attn_norm, mlp_norm;
    std::vector<Buffer<bf16>> transposed;  // experts that the file holds as [E, in, out]
    kernels::ExpertWeights experts;
  };

  void attention(const Layer& layer, Attention kind, const Batch& batch, const kernels::KvPages& kv);
  void mlp(size_t layer, int64_t rows);

  const Config config_;
  const Weights& weights_;
  const Ops& ops_;
  std::vector<Layer> layers_;
  Buffer<float> norm_;
  Buffer<float> frequencies_;
  float concentration_ = 1;

  // Of one step. x is the residual stream.
  int64_t max_rows_, max_logit_rows_, rows_ = 0;
  Buffer<float> x_, normed_, q_, k_, v_, attended_, rope_table_, router_logits_, expert_weights_, gathered_;
  Buffer<int32_t> expert_ids_;
  Buffer<int64_t> expert_load_;
  Buffer<std::byte> scratch_;
  Execution on_;
};

}  // namespace fathom::model
