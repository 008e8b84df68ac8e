#include "model/gpt_oss_gpu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/expect.h"
#include "kernels/expert_choice.h"
#include "kernels/expert_rows.h"
#include "kernels/fold_norm.h"
#include "kernels/packed_experts.h"
#include "kernels/packed_experts_many.h"
#include "kernels/packed_linear.h"
#include "kernels/paged_attention.h"
#include "kernels/step_rows.h"
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
                     kernels::SumOrder order, Device& device)
    : config_(c),
      weights_(weights),
      max_rows_(max_rows),
      max_logit_rows_(max_logit_rows),
      order_(order),
      query_width_(c.num_attention_heads * kHeadDim),
      units_(padded(c.intermediate_size)) {
  const int64_t T = max_rows, H = c.hidden_size, slots = T * c.num_experts_per_tok;
  x_              = {device, T * H};
  turns_          = {device, T * kHeadDim};
  frequencies_    = {device, kHeadDim / 2};
  expert_weights_ = {device, slots};
  slots_          = {device, slots * H};
  logits_         = {device, max_logit_rows * c.vocab_size};
  normed_         = {device, T * H};
  q_              = {device, T * query_width_};
  attended_       = {device, T * query_width_};
  sorted_         = {device, slots * H};
  gated_          = {device, slots * units_};
  chosen_         = {device, max_logit_rows * H};
  expert_ids_     = {device, slots};
  first_          = {device, c.num_local_experts + 1};
  slot_           = {device, slots};

  const RopeFrequencies rope = rope_frequencies(c.rope, c.head_dim);
  std::vector<float> frequencies(static_cast<size_t>(kHeadDim / 2), 0);
  std::copy(rope.of_pair.begin(), rope.of_pair.end(), frequencies.begin());
  device.to_device(frequencies_.data(), frequencies.data(), frequencies_.bytes());
  concentration_ = rope.concentration;
}

int64_t GptOssGpu::bytes(const Config& c, int64_t T, int64_t R) {
  const int64_t H = c.hidden_size, slots = T * c.num_experts_per_tok;
  return 4 * (T * (H + kHeadDim) + slots * (H + 3) + R * c.vocab_size) +
         2 * (T * (H + 2 * c.num_attention_heads * kHeadDim) + slots * (H + padded(c.intermediate_size)) +
              R * H);
}

void GptOssGpu::forward(const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream) {
  enter(batch, kv, stream);
  for (size_t l = 0; l < weights_.layers().size(); ++l) {
    attend(l, batch, kv, stream);
    leave(l, batch, kv, stream);
  }
}

void GptOssGpu::enter(const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0);
  FATHOM_EXPECT(T <= max_rows_, "a batch has more rows than the model was made for");
  kernels::embed(batch.tokens, batch.source, batch.sampled, weights_.embedding(),
                 x_.as({T, config_.hidden_size}), stream);
  kernels::turns(batch.positions, View<const float, 1>(frequencies_.view()), concentration_,
                 turns_.as({T, kHeadDim}), stream);
  heads(0, batch, kv, stream);
}

// Queries, keys and values of norm(x + what the experts before had to say).
void GptOssGpu::heads(size_t l, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0), H = config_.hidden_size;
  const GpuLayerWeights& w = weights_.layers()[l];
  const auto normed        = normed_.as({T, H});
  const auto experts =
      l == 0 ? View<const float, 3>(nullptr, {0, 0, 0}) : slots_.as({T, config_.num_experts_per_tok, H});
  kernels::fold_and_normalize(x_.as({T, H}), experts, w.attn_norm, static_cast<float>(config_.rms_norm_eps),
                              normed, stream);
  kernels::project_heads(constant(normed), w.qkv,
                         {.turns = View<const float, 2>(turns_.as({T, kHeadDim})),
                          .slots = (sliding(l) ? batch.window : batch.full).slots,
                          .q     = q_.as({T, config_.num_attention_heads, kHeadDim}),
                          .kv    = kv.layer(l)},
                         stream, order_);
}

void GptOssGpu::attend(size_t l, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0), heads = config_.num_attention_heads;
  const GpuLayerWeights& w = weights_.layers()[l];
  const auto& group        = sliding(l) ? batch.window : batch.full;
  const int64_t window     = sliding(l) ? config_.sliding_window : 0;
  const auto q = q_.as({T, heads, kHeadDim}), attended = attended_.as({T, heads, kHeadDim});
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)));
  const kernels::PagedRows rows{
      .positions = batch.positions, .sequence = batch.sequence, .pages = group.pages};
  const View<const bf16, 3> queries(q);
  if (const int64_t D = batch.single_rows; D > 0)
    kernels::attend_few(
        first(queries, D), kv.layer(l), w.sinks, scale, window,
        {.positions = first(rows.positions, D), .sequence = first(rows.sequence, D), .pages = rows.pages},
        batch.longest, first(attended, D), stream);
  if (batch.tiles.extent(0) > 0)
    kernels::attend_many(queries, kv.layer(l), w.sinks, scale, window, batch.tiles, rows, attended, stream);
}

// x += W_o attended + b_o, the layer's experts, and the next layer up to its attention.
void GptOssGpu::leave(size_t l, const GpuBatch& batch, const GpuKvCache& kv, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0);
  kernels::project_add(constant(attended_.as({T, query_width_})), weights_.layers()[l].out,
                       x_.as({T, config_.hidden_size}), stream, order_);
  mlp(l, batch, stream);
  if (l + 1 < weights_.layers().size()) heads(l + 1, batch, kv, stream);
}

// slots = what the experts of each row have to say to norm(x); the next fold adds it to x.
void GptOssGpu::mlp(size_t l, const GpuBatch& batch, StreamRef stream) {
  const int64_t T = batch.tokens.extent(0), H = config_.hidden_size, E = config_.num_local_experts;
  const int64_t top_k      = config_.num_experts_per_tok;
  const GpuLayerWeights& w = weights_.layers()[l];
  const auto normed        = normed_.as({T, H});
  const auto ids           = expert_ids_.as({T, top_k});
  const auto weights       = expert_weights_.as({T, top_k});
  const auto gated         = gated_.as({T * top_k, units_});
  const auto slots         = slots_.as({T * top_k, H});
  const auto limit         = static_cast<float>(config_.swiglu_limit);
  const auto alpha         = static_cast<float>(config_.swiglu_alpha);

  kernels::normalize_and_choose(View<const float, 2>(x_.as({T, H})), w.mlp_norm,
                                static_cast<float>(config_.rms_norm_eps), w.router, w.router_bias,
                                batch.positions, normed, ids, weights, stream);
  if (T <= kernels::kFewRows && order_ == kernels::SumOrder::by_rows) {
    kernels::experts_up_few(constant(normed), ids, w.mlp1, limit, alpha, gated, stream);
    kernels::experts_down_few(constant(gated), ids, weights, w.mlp2, slots, stream);
    return;
  }
  const auto sorted = sorted_.as({T * top_k, H});
  kernels::sort_by_expert(ids, first_.as({E + 1}), slot_.as({T * top_k}), stream);
  const kernels::ExpertRows rows{.first = first_.as({E + 1}), .slot = slot_.as({T * top_k})};
  kernels::gather_rows(constant(normed), rows, top_k, sorted, stream);
  kernels::experts_up_many(constant(sorted), rows, w.mlp1, limit, alpha, gated, stream);
  kernels::experts_down_many(constant(gated), rows, weights, w.mlp2, slots, stream);
}

View<float, 2> GptOssGpu::logits(View<const int32_t, 1> rows, int64_t first, StreamRef stream) {
  const int64_t R = rows.extent(0), T = max_rows_, H = config_.hidden_size;
  FATHOM_EXPECT(first + R <= max_logit_rows_, "more rows of logits are wanted than the model was made for");
  const auto chosen = chosen_.as({R, H});
  const View<float, 2> logits(logits_.data() + first * config_.vocab_size, {R, config_.vocab_size});
  kernels::fold_and_normalize_rows(View<const float, 2>(x_.as({T, H})),
                                   slots_.as({T, config_.num_experts_per_tok, H}), rows, weights_.norm(),
                                   static_cast<float>(config_.rms_norm_eps), chosen, stream);
  kernels::project(constant(chosen), weights_.unembedding(), logits, stream, order_);
  return logits;
}

}  // namespace fathom::model
