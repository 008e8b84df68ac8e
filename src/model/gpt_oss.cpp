#include "model/gpt_oss.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "model/yarn.h"

namespace fathom::model {
namespace {

using kernels::Output;

}  // namespace

GptOss::GptOss(const Config& config, const Weights& weights, const Ops& ops, int64_t max_rows,
               int64_t max_logit_rows, ThreadPool& threads, bool screening)
    : config_(config),
      processed_(config, weights, threads, screening),
      ops_(ops),
      max_rows_(max_rows),
      max_logit_rows_(max_logit_rows) {
  const int64_t T = max_rows, H = config.hidden_size, Dh = config.head_dim;
  const int64_t q = config.num_attention_heads * Dh, kv = config.num_key_value_heads * Dh;
  x_              = Buffer<float>(T * H);
  normed_         = Buffer<float>(T * H);
  q_              = Buffer<float>(T * q);
  k_              = Buffer<float>(T * kv);
  v_              = Buffer<float>(T * kv);
  attended_       = Buffer<float>(T * q);
  rope_table_     = Buffer<float>(T * Dh);
  router_logits_  = Buffer<float>(T * config.num_local_experts);
  expert_weights_ = Buffer<float>(T * config.num_experts_per_tok);
  expert_ids_     = Buffer<int32_t>(T * config.num_experts_per_tok);
  expert_load_    = Buffer<int64_t>(config.num_hidden_layers * config.num_local_experts);
  std::fill_n(expert_load_.data(), expert_load_.size(), 0);
  rank_of_.resize(static_cast<size_t>(config.num_experts_per_tok));
  count_ranks(config.num_local_experts / weights.layers.front().mlp1_bias.extent(0));
  gathered_ = Buffer<float>(max_logit_rows * H);
  scratch_  = Buffer<std::byte>(ops.scratch_bytes({.rows         = std::max(max_rows, max_logit_rows),
                                                   .hidden       = H,
                                                   .intermediate = config.intermediate_size,
                                                   .heads        = config.num_attention_heads,
                                                   .head_dim     = Dh,
                                                   .experts      = config.num_local_experts,
                                                   .top_k        = config.num_experts_per_tok,
                                                   .threads      = threads.threads()}));
  on_       = {.threads = &threads, .scratch = scratch_.view()};

  const RopeFrequencies rope = rope_frequencies(config.rope, Dh);
  frequencies_               = Buffer<float>(Dh / 2);
  std::copy(rope.inv_freq.begin(), rope.inv_freq.end(), frequencies_.data());
  concentration_ = rope.concentration;
}

int64_t GptOss::workspace_bytes() const {
  int64_t bytes = expert_ids_.size() * int64_t{sizeof(int32_t)} + scratch_.size();
  for (const Buffer<float>* buffer :
       {&x_, &normed_, &q_, &k_, &v_, &attended_, &rope_table_, &router_logits_, &expert_weights_, &gathered_,
        &logit_pieces_, &features_, &lora_in_, &lora_low_, &lora_out_})
    bytes += buffer->size() * int64_t{sizeof(float)};
  return bytes + processed_.copied_bytes();
}

void GptOss::forward(const Batch& batch, const KvCache& kv) {
  const int64_t T = batch.tokens.extent(0);
  FATHOM_EXPECT(T <= max_rows_, "a batch has more rows than the model was made for");
  rows_                  = T;
  const auto x           = x_.as({T, config_.hidden_size});
  const auto table       = rope_table_.as({T, config_.head_dim});
  const auto frequencies = View<const float, 1>(frequencies_.view());
  if (batch.embed) ops_.embedding(batch.tokens, processed_.weights.embedding, x, on_);
  ops_.rope_table(batch.rows.positions, frequencies, concentration_, table, on_);
  for (size_t l = 0; l < processed_.layers.size(); ++l) {
    attention(l, batch, kv.layer(static_cast<int64_t>(l)));
    mlp(l, batch.rows.positions);
    const int64_t H = config_.hidden_size, taps = static_cast<int64_t>(taps_.size());
    for (int64_t t = 0; t < taps; ++t)
      if (taps_[static_cast<size_t>(t)] == static_cast<int64_t>(l))
        for (int64_t r = 0; r < T; ++r)
          std::copy_n(x_.data() + r * H, H, features_.data() + (r * taps + t) * H);
  }
}

void GptOss::tap(const std::vector<int64_t>& layers) {
  taps_     = layers;
  features_ = Buffer<float>(max_rows_ * static_cast<int64_t>(layers.size()) * config_.hidden_size);
}

// x += W_o attention(norm(x)) + b_o
void GptOss::attention(size_t l, const Batch& batch, const kernels::KvPages& kv) {
  const int64_t T = batch.tokens.extent(0), H = config_.hidden_size, Dh = config_.head_dim;
  const int64_t heads = config_.num_attention_heads, kv_heads = config_.num_key_value_heads;
  const LayerWeights& w = processed_.weights.layers[l];
  const auto x = x_.as({T, H}), normed = normed_.as({T, H});
  const auto q = q_.as({T, heads, Dh}), k = k_.as({T, kv_heads, Dh}), v = v_.as({T, kv_heads, Dh});
  const auto attended = attended_.as({T, heads, Dh});
  const auto table    = rope_table_.as({T, Dh});

  ops_.rmsnorm(x, processed_.layers[l].attn_norm.view(), config_.rms_norm_eps, normed, on_);
  ops_.linear(normed, w.q, w.q_bias, Output::overwrite, q_.as({T, heads * Dh}), on_);
  ops_.linear(normed, w.k, w.k_bias, Output::overwrite, k_.as({T, kv_heads * Dh}), on_);
  ops_.linear(normed, w.v, w.v_bias, Output::overwrite, v_.as({T, kv_heads * Dh}), on_);
  add_adapters(l, kQuery, batch, normed, q_.as({T, heads * Dh}));
  add_adapters(l, kKey, batch, normed, k_.as({T, kv_heads * Dh}));
  add_adapters(l, kValue, batch, normed, v_.as({T, kv_heads * Dh}));
  ops_.rope(q, table, on_);
  ops_.rope(k, table, on_);

  const bool sliding         = config_.layers[l] == Attention::sliding;
  kernels::SequenceRows rows = batch.rows;
  if (sliding) rows.pages = batch.window_pages;
  (sliding ? ops_.window_kv_store : ops_.kv_store)(k, v, rows, kv, on_);
  ops_.attention(q, kv, w.sinks, sliding ? config_.sliding_window : 0, rows, attended, on_);
  begin_sum(x);
  ops_.linear(attended_.as({T, heads * Dh}), w.out, w.out_bias, Output::add, x, on_);
  add_adapters(l, kOutput, batch, attended_.as({T, heads * Dh}), x);
  all_reduce(x);
}

// y += B A x, of rows whose sequence has an adapter of this matrix. Rows of an adapter are brought together,
// so that its matrices are read once. A row's result does not depend on the others.
void GptOss::add_adapters(size_t layer, AttentionMatrix matrix, const Batch& batch, View<const float, 2> x,
                          View<float, 2> y) {
  if (batch.adapters.empty()) return;
  const int64_t in = x.extent(1), out = y.extent(1);
  for (size_t a = 0; a < adapters_.size(); ++a) {
    const LoraAdapter::Pair& pair = adapters_[a].pair(static_cast<int64_t>(layer), matrix);
    if (pair.a.size() == 0) continue;
    adapted_rows_.clear();
    for (size_t s = 0; s < batch.adapters.size(); ++s)
      if (batch.adapters[s] == static_cast<int32_t>(a))
        for (int64_t r = batch.rows.first_row(static_cast<int64_t>(s));
             r < batch.rows.first_row(static_cast<int64_t>(s) + 1); ++r)
          adapted_rows_.push_back(r);
    const auto n = std::ssize(adapted_rows_);
    if (n == 0) continue;
    for (int64_t i = 0; i < n; ++i)
      std::copy_n(&x(adapted_rows_[static_cast<size_t>(i)], 0), in, lora_in_.data() + i * in);
    const auto low = lora_low_.as({n, adapters_[a].rank()});
    ops_.linear(lora_in_.as({n, in}), pair.a, {}, Output::overwrite, low, on_);
    ops_.linear(low, pair.b, {}, Output::overwrite, lora_out_.as({n, out}), on_);
    on_.threads->parallel_for(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* to         = &y(adapted_rows_[static_cast<size_t>(i)], 0);
        const float* from = lora_out_.data() + i * out;
        for (int64_t c = 0; c < out; ++c) to[c] += from[c];
      }
    });
  }
}

void GptOss::set_adapters(std::vector<LoraAdapter> adapters) {
  FATHOM_EXPECT(!group_, "a rank of several has no adapters");
  adapters_ = std::move(adapters);
  adapted_rows_.reserve(static_cast<size_t>(max_rows_));
  int64_t rank = 0;
  for (const LoraAdapter& adapter : adapters_) rank = std::max(rank, adapter.rank());
  const int64_t widest = std::max(config_.hidden_size, config_.num_attention_heads * config_.head_dim);
  lora_in_             = Buffer<float>(max_rows_ * widest);
  lora_low_            = Buffer<float>(max_rows_ * rank);
  lora_out_            = Buffer<float>(max_rows_ * widest);
}

// x += experts(norm(x))
void GptOss::mlp(size_t l, View<const int32_t, 1> positions) {
  const ProcessedWeights::Layer& layer = processed_.layers[l];
  const int64_t T = positions.extent(0), H = config_.hidden_size, E = config_.num_local_experts,
                top_k   = config_.num_experts_per_tok;
  const LayerWeights& w = processed_.weights.layers[l];
  const auto x = x_.as({T, H}), normed = normed_.as({T, H});
  const auto router_logits = router_logits_.as({T, E});
  const auto ids           = expert_ids_.as({T, top_k});
  const auto weights       = expert_weights_.as({T, top_k});
  ops_.rmsnorm(x, layer.mlp_norm.view(), config_.rms_norm_eps, normed, on_);
  ops_.linear(normed, w.router, w.router_bias, Output::overwrite, router_logits, on_);
  ops_.router(router_logits, ids, weights, on_);
  keep_own_experts(static_cast<int64_t>(l), ids, positions);
  begin_sum(x);
  ops_.experts(normed, ids, weights, layer.experts, x, on_);
  all_reduce(x);
}

// Counts who computes what, and turns the experts of other ranks into kNoExpert and its own into their place
// among its weights.
void GptOss::keep_own_experts(int64_t layer, View<int32_t, 2> ids, View<const int32_t, 1> positions) {
  const int64_t E = config_.num_local_experts, here = E / expert_ranks_;
  const int64_t me   = table_ ? rank_in_table_ : processed_.weights.first_expert / here;
  int64_t* load      = expert_load_.data() + layer * E;
  int64_t* rank_load = rank_load_.data() + layer * expert_ranks_;
  for (int64_t t = 0; t < ids.extent(0); ++t) {
    const std::span token(&ids(t, 0), rank_of_.size());
    if (table_)
      table_->choose_ranks(layer, positions(t), token, rank_of_);
    else
      for (size_t k = 0; k < token.size(); ++k) rank_of_[k] = static_cast<int32_t>(token[k] / here);
    for (size_t k = 0; k < token.size(); ++k) {
      ++load[token[k]];
      ++rank_load[rank_of_[k]];
      token[k] = rank_of_[k] == me ? token[k] - static_cast<int32_t>(processed_.weights.first_expert)
                                   : kernels::kNoExpert;
    }
  }
}

void GptOss::count_ranks(int64_t ranks) {
  expert_ranks_ = ranks;
  rank_load_    = Buffer<int64_t>(config_.num_hidden_layers * ranks);
  std::fill_n(rank_load_.data(), rank_load_.size(), 0);
}

void GptOss::place_experts(std::shared_ptr<const ExpertTable> table, int64_t rank) {
  FATHOM_EXPECT(table->experts() == processed_.weights.layers.front().mlp1_bias.extent(0) &&
                    table->experts() == config_.num_local_experts &&
                    table->layers() == config_.num_hidden_layers && rank >= 0 && rank < table->ranks(),
                "a table places all experts of all layers, whose weights every rank has");
  if (table->ranks() != expert_ranks_) count_ranks(table->ranks());
  table_         = std::move(table);
  rank_in_table_ = rank;
}

void GptOss::swap(ProcessedWeights& weights) {
  FATHOM_EXPECT(weights.layers.size() == processed_.layers.size() &&
                    weights.weights.first_expert == processed_.weights.first_expert &&
                    weights.weights.layers.front().mlp1_bias.extent(0) ==
                        processed_.weights.layers.front().mlp1_bias.extent(0),
                "weights are swapped with those of the same part of the same model");
  std::swap(weights, processed_);
}

void GptOss::join(comm::Group* group) {
  group_ = group;
  if (group && logit_pieces_.size() == 0) logit_pieces_ = Buffer<float>(max_logit_rows_ * config_.vocab_size);
}

// Before every rank adds its part of a layer to x: the residual stream goes into the sum once, with rank 0's
// part, and so do the biases.
void GptOss::begin_sum(View<float, 2> x) const {
  if (group_ && group_->rank() > 0) std::fill_n(x.data(), x.size(), 0.0f);
}

void GptOss::all_reduce(View<float, 2> x) const {
  if (group_) group_->all_reduce(std::span(x.data(), static_cast<size_t>(x.size())));
}

// Every rank has the logits of its part of the vocabulary.
void GptOss::all_gather_logits(View<const float, 2> rows, View<float, 2> logits) {
  const int64_t R = rows.extent(0), part = kernels::rows_of(processed_.weights.unembedding),
                N   = group_->size();
  const auto pieces = logit_pieces_.as({N, R, part});
  const std::span mine(&pieces(group_->rank(), 0, 0), static_cast<size_t>(R * part));
  ops_.linear(rows, processed_.weights.unembedding, {}, Output::overwrite,
              View<float, 2>(mine.data(), {R, part}), on_);
  group_->all_gather(std::span<const float>(mine),
                     std::span(pieces.data(), static_cast<size_t>(pieces.size())));
  for (int64_t r = 0; r < R; ++r)
    for (int64_t n = 0; n < N; ++n) std::copy_n(&pieces(n, r, 0), part, &logits(r, n * part));
}

// Of rows of the last batch, [R, H].
View<float, 2> GptOss::last_norm(View<const int32_t, 1> rows) {
  const int64_t R = rows.extent(0), H = config_.hidden_size;
  FATHOM_EXPECT(R <= max_logit_rows_, "more rows of logits are wanted than the model was made for");
  const auto gathered = gathered_.as({R, H});
  for (int64_t r = 0; r < R; ++r) {
    FATHOM_EXPECT(rows(r) >= 0 && rows(r) < rows_, "logits are wanted of a row that the batch did not have");
    std::copy_n(x_.data() + rows(r) * H, H, &gathered(r, 0));
  }
  ops_.rmsnorm(gathered, processed_.norm.view(), config_.rms_norm_eps, gathered, on_);
  return gathered;
}

void GptOss::screened_logits(View<const int32_t, 1> rows, std::span<const DrawRule> rules,
                             View<float, 2> logits) {
  FATHOM_EXPECT(has_screen(), "screened_logits() needs a copy of the unembedding, and a rank alone");
  processed_.screen->logits(ops_, View<const float, 2>(last_norm(rows)), rules, logits, on_);
}

void GptOss::logits(View<const int32_t, 1> rows, View<float, 2> logits) {
  const auto gathered = last_norm(rows);
  if (group_) return all_gather_logits(gathered, logits);
  ops_.linear(gathered, processed_.weights.unembedding, {}, Output::overwrite, logits, on_);
}

}  // namespace fathom::model
