#include "model/gpt_oss_gpu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/expect.h"
#include "kernels/attention/decode_attention.h"
#include "kernels/attention/rope_table.h"
#include "kernels/embedding/embedding_gpu.h"
#include "kernels/gemm/linear_gpu.h"
#include "kernels/moe/experts_gemv.h"
#include "kernels/moe/experts_grouped_gemm.h"
#include "kernels/moe/permute.h"
#include "kernels/moe/rmsnorm_router.h"
#include "kernels/norm/add_rmsnorm.h"
#include "model/yarn.h"

namespace fathom::model {
namespace {

using kernels::kHeadDim;
using kernels::padded;

View<const bf16, 2> constant(View<bf16, 2> view) { return view; }

template <class T, int Rank>
View<T, Rank> first(View<T, Rank> view, int64_t rows) {
  int64_t extents[Rank], strides[Rank];
  for (int r = 0; r < Rank; ++r) extents[r] = view.extent(r), strides[r] = view.stride(r);
  extents[0] = rows;
  return View<T, Rank>(view.data(), extents, strides);
}

}  // namespace

GptOssGpu::GptOssGpu(const Config& c, const GpuWeights& weights, int64_t max_rows, int64_t max_logit_rows,
                     kernels::SumOrder order, Device& device, const GpuDecodeOptions& options, int64_t rank,
                     int64_t ranks)
    : config_(c),
      weights_(weights),
      max_rows_(max_rows),
      max_logit_rows_(max_logit_rows),
      order_(order),
      options_(options),
      query_width_(c.num_attention_heads * kHeadDim),
      intermediate_size_(padded(c.intermediate_size)),
      peers_{.rank   = static_cast<int>(rank),
             .layout = {.ranks = ranks, .max_rows = max_rows, .width = c.hidden_size}} {
  const int64_t T = max_rows, H = c.hidden_size, expert_rows = T * c.num_experts_per_tok;
  x_              = {device, T * H};
  rope_table_     = {device, T * kHeadDim};
  frequencies_    = {device, kHeadDim / 2};
  expert_weights_ = {device, expert_rows};
  expert_outputs_ = {device, expert_rows * H};
  logits_         = {device, rank == 0 ? max_logit_rows * c.vocab_size : 0};
  receive_        = {device, peers_.layout.bytes()};
  partial_        = {device, ranks > 1 ? T * H : 0};
  normed_         = {device, T * H};
  q_              = {device, T * query_width_};
  attn_out_       = {device, T * query_width_};
  sorted_         = {device, expert_rows * H};
  activations_    = {device, expert_rows * intermediate_size_};
  logit_rows_     = {device, max_logit_rows * H};
  expert_ids_     = {device, expert_rows};
  expert_offsets_ = {device, c.num_local_experts + 1};
  sorted_ids_     = {device, expert_rows};
  grid_barrier_   = {device, 1};
  screened_state_ = {device, 1};
  device.set_words(screened_state_.data(), screened_state_.bytes(), 0);
  device.set_words(grid_barrier_.data(), grid_barrier_.bytes(), 0);

  const RopeFrequencies rope = rope_frequencies(c.rope, c.head_dim);
  std::vector<float> frequencies(static_cast<size_t>(kHeadDim / 2), 0);
  std::copy(rope.inv_freq.begin(), rope.inv_freq.end(), frequencies.begin());
  device.to_device(frequencies_.data(), frequencies.data(), frequencies_.bytes());
  concentration_ = rope.concentration;
  all_logits_    = logits_.data();
  if (ranks > 1) device.set_words(receive_.data(), receive_.bytes(), 0);
}

void GptOssGpu::join(std::span<GptOssGpu* const> ranks) {
  for (GptOssGpu* model : ranks) {
    FATHOM_EXPECT(model->ranks() == static_cast<int64_t>(ranks.size()),
                  "a rank was made for another number of ranks");
    for (size_t r = 0; r < ranks.size(); ++r) model->peers_.receive[r] = ranks[r]->receive_.data();
    model->all_logits_ = ranks[0]->logits_.data();
  }
}

int64_t GptOssGpu::bytes(const Config& c, int64_t T, int64_t R, int64_t ranks) {
  const int64_t H = c.hidden_size, expert_rows = T * c.num_experts_per_tok;
  const kernels::ReceiveBuffer receive{.ranks = ranks, .max_rows = T, .width = H};
  return receive.bytes() + (ranks > 1 ? 4 * T * H : 0) +
         4 * (T * (H + kHeadDim) + expert_rows * (H + 3) + R * c.vocab_size + 1) +
         2 * (T * (H + 2 * c.num_attention_heads * kHeadDim) +
              expert_rows * (H + padded(c.intermediate_size)) + R * H);
}

void GptOssGpu::forward(const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream) {
  before_attention(batch, kv, stream);
  for (size_t l = 0; l < weights_.layers().size(); ++l) {
    attention(l, batch, kv, stream);
    after_attention(l, batch, kv, stream);
  }
}

void GptOssGpu::before_attention(const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0);
  FATHOM_EXPECT(T <= max_rows_, "a batch has more rows than the model was made for");
  kernels::embedding(batch.tokens, batch.prev_sampled_index, batch.prev_sampled, weights_.embedding(),
                     x_.as({T, config_.hidden_size}), stream);
  kernels::rope_table(batch.positions, View<const float, 1>(frequencies_.view()), concentration_,
                      rope_table_.as({T, kHeadDim}), stream);
  project_qkv(0, batch, kv, stream);
}

kernels::CollectiveCall GptOssGpu::sum(const GpuBatch& batch, size_t layer, int index) const {
  const auto layers = static_cast<int>(weights_.layers().size());
  return {.pass = batch.pass, .index = 2 * static_cast<int>(layer) + index, .count = 2 * layers + 2};
}

View<const float, 3> GptOssGpu::expert_outputs(int64_t rows) const {
  if (ranks() > 1 || rows == 0) return View<const float, 3>(nullptr, {0, 0, 0});
  return expert_outputs_.as({rows, config_.num_experts_per_tok, config_.hidden_size});
}

// Adds the previous layer's expert outputs to x, normalises, and projects to queries, keys and values.
void GptOssGpu::project_qkv(size_t l, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0), H = config_.hidden_size;
  const GpuLayerWeights& w = weights_.layers()[l];
  const auto normed        = normed_.as({T, H});
  kernels::add_rmsnorm(x_.as({T, H}), expert_outputs(l == 0 ? 0 : T), w.attn_norm,
                       static_cast<float>(config_.rms_norm_eps), normed, stream);
  kernels::qkv_rope(constant(normed), w.qkv,
                    {.rope_table   = View<const float, 2>(rope_table_.as({T, kHeadDim})),
                     .slot_mapping = (sliding(l) ? batch.window : batch.full).slot_mapping,
                     .q            = q_.as({T, config_.num_attention_heads, kHeadDim}),
                     .kv           = kv.layer(l)},
                    stream, order_);
}

void GptOssGpu::attention(size_t l, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0), heads = config_.num_attention_heads;
  const GpuLayerWeights& w = weights_.layers()[l];
  const auto& metadata     = sliding(l) ? batch.window : batch.full;
  const int64_t window     = sliding(l) ? config_.sliding_window : 0;
  const auto q = q_.as({T, heads, kHeadDim}), attn_out = attn_out_.as({T, heads, kHeadDim});
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)));
  const kernels::PagedRows rows{
      .positions = batch.positions, .sequence = batch.sequence, .pages = metadata.block_table};
  const View<const bf16, 3> queries(q);
  if (const int64_t D = batch.decode_rows; D > 0)
    kernels::decode_attention(
        first(queries, D), kv.layer(l), w.sinks, scale, window,
        {.positions = first(rows.positions, D), .sequence = first(rows.sequence, D), .pages = rows.pages},
        batch.max_seq_len, first(attn_out, D), stream,
        options_.early_output_projection ? kernels::Dependents::start_early
                                         : kernels::Dependents::start_late);
  if (batch.tiles.extent(0) > 0)
    kernels::prefill_attention(queries, kv.layer(l), w.sinks, scale, window, batch.tiles, rows, attn_out,
                               stream);
}

// The output projection, the experts, and the next layer up to its attention.
void GptOssGpu::after_attention(size_t l, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream) {
  project_out(l, batch, stream);
  mlp(l, batch, stream);
  if (l + 1 < weights_.layers().size()) project_qkv(l + 1, batch, kv, stream);
}

// x += W_o attn_out + b_o.
void GptOssGpu::project_out(size_t l, const GpuBatch& batch, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0), H = config_.hidden_size;
  const auto x = x_.as({T, H});
  const View<const bf16, 2> attn_out(attn_out_.as({T, query_width_}));
  const auto& w = weights_.layers()[l].out;
  if (ranks() == 1) return kernels::linear_add(attn_out, w, x, stream, order_);
  kernels::linear(attn_out, w, partial_.as({T, H}), stream, order_);
  kernels::all_reduce_add(View<const float, 3>(partial_.as({T, 1, H})),
                          View<const int32_t, 2>(nullptr, {0, 0}), peers_, sum(batch, l, 0), x, stream);
}

// expert_outputs = the experts of norm(x). The next add_rmsnorm adds them to x; of several ranks, the sum
// does.
void GptOssGpu::mlp(size_t l, const GpuBatch& batch, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0), H = config_.hidden_size;
  const int64_t E           = weights_.layers()[l].mlp1.experts;  // of this rank
  const int64_t top_k       = config_.num_experts_per_tok;
  const GpuLayerWeights& w  = weights_.layers()[l];
  const auto normed         = normed_.as({T, H});
  const auto ids            = expert_ids_.as({T, top_k});
  const auto weights        = expert_weights_.as({T, top_k});
  const auto activations    = activations_.as({T * top_k, intermediate_size_});
  const auto expert_outputs = expert_outputs_.as({T * top_k, H});
  const auto limit          = static_cast<float>(config_.swiglu_limit);
  const auto alpha          = static_cast<float>(config_.swiglu_alpha);

  kernels::rmsnorm_router(View<const float, 2>(x_.as({T, H})), w.mlp_norm,
                          static_cast<float>(config_.rms_norm_eps), w.router, w.router_bias, batch.positions,
                          normed, ids, weights, stream, {.first = weights_.first_expert(), .count = E});
  if (T <= kernels::kMaxGemvRows && order_ == kernels::SumOrder::by_rows) {
    if (options_.fused_experts) {
      kernels::experts_gemv_fused(constant(normed), ids, weights, w.mlp1, w.mlp2, limit, alpha, activations,
                                  expert_outputs, grid_barrier_.data(), stream);
      return add_experts(l, batch, stream);
    }
    kernels::experts_up_gemv(constant(normed), ids, w.mlp1, limit, alpha, activations, stream);
    kernels::experts_down_gemv(constant(activations), ids, weights, w.mlp2, expert_outputs, stream);
    return add_experts(l, batch, stream);
  }
  const auto sorted = sorted_.as({T * top_k, H});
  kernels::sort_by_expert(ids, expert_offsets_.as({E + 1}), sorted_ids_.as({T * top_k}), stream);
  const kernels::ExpertRows rows{.offsets    = expert_offsets_.as({E + 1}),
                                 .sorted_ids = sorted_ids_.as({T * top_k})};
  kernels::gather_rows(constant(normed), rows, top_k, sorted, stream);
  kernels::experts_up_grouped_gemm(constant(sorted), rows, w.mlp1, limit, alpha, activations, stream);
  kernels::experts_down_grouped_gemm(constant(activations), rows, weights, w.mlp2, expert_outputs, stream);
  add_experts(l, batch, stream);
}

void GptOssGpu::add_experts(size_t l, const GpuBatch& batch, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0), H = config_.hidden_size;
  if (ranks() > 1)
    kernels::all_reduce_add(View<const float, 3>(expert_outputs_.as({T, config_.num_experts_per_tok, H})),
                            View<const int32_t, 2>(expert_ids_.as({T, config_.num_experts_per_tok})), peers_,
                            sum(batch, l, 1), x_.as({T, H}), stream);
}

View<const bf16, 2> GptOssGpu::last_norm(View<const int32_t, 1> rows, StreamRef stream) {
  const int64_t R = rows.extent(0), T = max_rows_, H = config_.hidden_size;
  const auto normed = logit_rows_.as({R, H});
  kernels::add_rmsnorm_rows(View<const float, 2>(x_.as({T, H})), expert_outputs(T), rows, weights_.norm(),
                            static_cast<float>(config_.rms_norm_eps), normed, stream);
  return constant(normed);
}

void GptOssGpu::screened_tokens(View<const int32_t, 1> rows, int64_t first,
                                View<const kernels::SamplingRow, 1> rules, View<int32_t, 1> sampled,
                                StreamRef stream) {
  const int64_t R = rows.extent(0), V = config_.vocab_size;
  FATHOM_EXPECT(can_screen(R) && first + R <= max_logit_rows_, "these rows cannot be screened");
  kernels::screened_argmax(last_norm(rows, stream), weights_.unembedding(), weights_.screening(), rules,
                           {logits_.data() + first * V, {R, V}}, screened_state_.data(), sampled, stream);
}

void GptOssGpu::logits(const GpuBatch& batch, View<const int32_t, 1> rows, int64_t first, StreamRef stream) {
  const int64_t R = rows.extent(0), V = config_.vocab_size;
  FATHOM_EXPECT(first + R <= max_logit_rows_, "more rows of logits are wanted than the model was made for");
  const int64_t part = V / ranks();
  kernels::linear(last_norm(rows, stream), weights_.unembedding(),
                  View<float, 2>(all_logits_ + first * V + peers_.rank * part, {R, part}, {V, 1}), stream,
                  order_);
  if (ranks() > 1) kernels::rank_barrier(peers_, sum(batch, weights_.layers().size(), 0), stream);
}

}  // namespace fathom::model
