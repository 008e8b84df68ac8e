// The forward pass of gpt-oss over a table of ops: tokens of several sequences in, logits out. It follows
// OpenAI's implementation (github.com/openai/gpt-oss): pre-norm blocks of attention with sinks, alternately
// over a sliding window and the full context, and a mixture of experts with clamped SwiGLU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/group.h"
#include "core/buffer.h"
#include "core/view.h"
#include "kernels/execution.h"
#include "model/config.h"
#include "model/expert_table.h"
#include "model/kv_cache.h"
#include "model/lora_adapter.h"
#include "model/ops.h"
#include "model/processed_weights.h"
#include "model/weights.h"

namespace fathom::model {

// The rows of one step, prefill and decode alike. SequenceRows::pages is the block table of the
// full-attention layers.
struct Batch {
  View<const int32_t, 1> tokens;  // [T], in the vocabulary
  kernels::SequenceRows rows;
  View<const int32_t, 2> window_pages;     // [S, P]: the block table of the sliding-window layers
  std::span<const int32_t> adapters = {};  // [S]: of GptOss::set_adapters, -1 for none; empty: nobody has one
  // False: hidden_states() hold what the stage before this one made of the tokens.
  bool embed = true;
};

class GptOss {
 public:
  // The memory that `weights` view, and `threads`, must outlive it. Allocates activations for `max_rows` rows
  // and `max_logit_rows` rows of logits, and a transposed copy of experts in bf16. `screening`: as
  // ProcessedWeights has it.
  GptOss(const Config& config, const Weights& weights, const Ops& ops, int64_t max_rows,
         int64_t max_logit_rows, ThreadPool& threads, bool screening = false);

  // Runs all layers and stores the rows' keys and values in `kv`. T is at most max_rows. `kv` must hold the
  // earlier positions of each sequence.
  void forward(const Batch& batch, const KvCache& kv);

  // The residual stream of so many rows, [T, H]: after forward() that behind the last layer, which stages of
  // a pipeline hand on.
  View<float, 2> hidden_states(int64_t rows) const { return x_.as({rows, config_.hidden_size}); }

  // Computes the logits [R, V] of rows of the last batch. R is at most max_logit_rows.
  void logits(View<const int32_t, 1> rows, View<float, 2> logits);
  // The same by the screen (model/unembedding_screen.h), for rows whose tokens are chosen by these rules,
  // [R]. Only where it has_screen().
  void screened_logits(View<const int32_t, 1> rows, std::span<const DrawRule> rules, View<float, 2> logits);
  bool has_screen() const { return processed_.screen && !group_; }

  // From now on it is a rank of several, whose config and weights are its parts (model/shard.h). All ranks
  // call forward() and logits() with the same rows; activations between layers, and logits, are the same bits
  // on all of them. Both throw GroupError, after which the values that they compute are undefined until
  // forward() has returned in another group. The group must outlive the calls; null: no other ranks.
  void join(comm::Group* group);

  // From now on it computes the experts of rank `rank` in this table, which all ranks must have. Its weights
  // have all experts (ShardOptions::movable_experts). Without it, a rank computes the experts whose weights
  // it has. Nothing is copied.
  void place_experts(std::shared_ptr<const ExpertTable> table, int64_t rank);

  // From now on it computes with these weights, of the same config and of the same part of the model;
  // `weights` gets those that it had. Copies nothing.
  void swap(ProcessedWeights& weights);

  // The adapters that batches choose from. A rank of several has none.
  void set_adapters(std::vector<LoraAdapter> adapters);

  // From now on forward() keeps the residual stream after these layers, from 0: features() of the last batch
  // are [T, layers H].
  void tap(const std::vector<int64_t>& layers);
  View<const float, 2> features() const {
    return features_.as({rows_, static_cast<int64_t>(taps_.size()) * config_.hidden_size});
  }

  // Memory of activations, scratch and transposed experts.
  int64_t workspace_bytes() const;

  // Rows routed to each expert so far, [layers, E].
  View<const int64_t, 2> expert_load() const {
    return expert_load_.as({config_.num_hidden_layers, config_.num_local_experts});
  }
  // The same by the rank that computed them, [layers, ranks]; all ranks count for all.
  View<const int64_t, 2> rank_load() const {
    return rank_load_.as({config_.num_hidden_layers, expert_ranks_});
  }

 private:
  void attention(size_t layer, const Batch& batch, const kernels::KvPages& kv);
  void mlp(size_t layer, View<const int32_t, 1> positions);
  void add_adapters(size_t layer, AttentionMatrix matrix, const Batch& batch, View<const float, 2> x,
                    View<float, 2> y);
  void keep_own_experts(int64_t layer, View<int32_t, 2> ids, View<const int32_t, 1> positions);
  void count_ranks(int64_t ranks);
  void begin_sum(View<float, 2> x) const;
  void all_reduce(View<float, 2> x) const;
  View<float, 2> last_norm(View<const int32_t, 1> rows);
  void all_gather_logits(View<const float, 2> rows, View<float, 2> logits);

  const Config config_;
  ProcessedWeights processed_;
  const Ops ops_;
  comm::Group* group_ = nullptr;
  Buffer<float> frequencies_;
  float concentration_ = 1;

  // Activations of one step. x is the residual stream.
  int64_t max_rows_, max_logit_rows_, rows_ = 0;
  Buffer<float> x_, normed_, q_, k_, v_, attended_, rope_table_, router_logits_, expert_weights_, gathered_,
      logit_pieces_;
  std::vector<int64_t> taps_;
  Buffer<float> features_;
  Buffer<int32_t> expert_ids_;
  Buffer<int64_t> expert_load_, rank_load_;
  std::vector<LoraAdapter> adapters_;
  std::vector<int64_t> adapted_rows_;  // of one adapter
  Buffer<float> lora_in_, lora_low_, lora_out_;
  // Expert parallelism.
  int64_t expert_ranks_ = 1;
  std::shared_ptr<const ExpertTable> table_;  // null: experts are where their weights are
  int64_t rank_in_table_ = 0;
  std::vector<int32_t> rank_of_;  // [top_k], of a token's experts
  Buffer<std::byte> scratch_;
  Execution on_;
};

}  // namespace fathom::model
