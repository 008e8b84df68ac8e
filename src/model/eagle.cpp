#include "model/eagle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/expect.h"
#include "core/thread_pool.h"

namespace fathom::model {
namespace {

using kernels::Output;

constexpr int64_t kEagleRows = 64, kEagleSlots = Eagle::kWindow + Eagle::kAhead;

Result<Buffer<float>> eagle_norm(const Safetensors& tensors, const std::string& name, int64_t size) {
  const auto found = tensors.view<bf16, 1>(name);
  if (!found) return found.error();
  if (found->extent(0) != size)
    return Error{fmt::format("{}: {} has {} numbers, not {}", tensors.path(), name, found->extent(0), size)};
  Buffer<float> weights(size);
  for (int64_t i = 0; i < size; ++i) weights.data()[i] = static_cast<float>((*found)(i));
  return weights;
}

Status eagle_matrix(const Safetensors& tensors, const std::string& name, int64_t out, int64_t in,
                    View<const bf16, 2>& into) {
  const auto found = tensors.view<bf16, 2>(name);
  if (!found) return found.error();
  if (found->extent(0) != out || found->extent(1) != in)
    return Error{fmt::format("{}: {} is {} x {}, but config.json and the target make it {} x {}",
                             tensors.path(), name, found->extent(0), found->extent(1), out, in)};
  into = *found;
  return Ok{};
}

}  // namespace

Result<std::unique_ptr<Eagle>> Eagle::open(const std::filesystem::path& folder, const Checkpoint& target,
                                           const Ops& ops, ThreadPool& threads) {
  std::unique_ptr<Eagle> eagle(new Eagle(target, ops, threads));
  if (const Status good = eagle->load(folder); !good) return good.error();
  return eagle;
}

Status Eagle::load(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  std::ifstream file(path);
  const auto config = nlohmann::json::parse(file, nullptr, false);
  if (!config.is_object())
    return Error{fmt::format("{}: no draft model's configuration could be read there", path.string())};
  const auto& t = target_.config;
  try {
    hidden_               = config.at("hidden_size").get<int64_t>();
    intermediate_         = config.at("intermediate_size").get<int64_t>();
    heads_                = config.at("num_attention_heads").get<int64_t>();
    kv_heads_             = config.at("num_key_value_heads").get<int64_t>();
    head_dim_             = config.value("head_dim", hidden_ / std::max<int64_t>(heads_, 1));
    eps_                  = config.value("rms_norm_eps", 1e-5);
    theta_                = config.value("rope_theta", 10000.0);
    norm_before_fc_       = config.value("norm_before_fc", false);
    taps_                 = config.at("eagle_aux_hidden_state_layer_ids").get<std::vector<int64_t>>();
    const auto vocabulary = config.value("draft_vocab_size", t.vocab_size);
    if (hidden_ != t.hidden_size || vocabulary != t.vocab_size)
      return Error{
          fmt::format("{}: the draft model has a hidden size of {} and {} tokens, but its target {} and {}",
                      path.string(), hidden_, vocabulary, t.hidden_size, t.vocab_size)};
  } catch (const nlohmann::json::exception& error) {
    return Error{fmt::format("{}: {}", path.string(), error.what())};
  }
  for (const int64_t tap : taps_)
    if (tap < 0 || tap >= t.num_hidden_layers)
      return Error{fmt::format("{}: the draft model reads layer {}, but the target has layers 0 to {}",
                               path.string(), tap, t.num_hidden_layers - 1)};
  if (taps_.empty() || heads_ < 1 || kv_heads_ < 1 || heads_ % kv_heads_ != 0 || head_dim_ < 2 ||
      head_dim_ % 2 != 0 || intermediate_ < 1)
    return Error{
        fmt::format("{}: heads {}, key-value heads {}, head_dim {} and {} tapped layers make no model",
                    path.string(), heads_, kv_heads_, head_dim_, taps_.size())};

  auto tensors = Safetensors::open(folder);
  if (!tensors) return tensors.error();
  tensors_        = std::move(tensors).value();
  const int64_t H = hidden_, q = heads_ * head_dim_, kv = kv_heads_ * head_dim_;
  const std::string layer = "midlayer.", attention = layer + "self_attn.", mlp = layer + "mlp.";
  for (const Status& good : {eagle_matrix(tensors_, "fc.weight", H, feature_size(), w_.fc),
                             eagle_matrix(tensors_, attention + "q_proj.weight", q, 2 * H, w_.q),
                             eagle_matrix(tensors_, attention + "k_proj.weight", kv, 2 * H, w_.k),
                             eagle_matrix(tensors_, attention + "v_proj.weight", kv, 2 * H, w_.v),
                             eagle_matrix(tensors_, attention + "o_proj.weight", H, q, w_.o),
                             eagle_matrix(tensors_, mlp + "gate_proj.weight", intermediate_, H, w_.gate),
                             eagle_matrix(tensors_, mlp + "up_proj.weight", intermediate_, H, w_.up),
                             eagle_matrix(tensors_, mlp + "down_proj.weight", H, intermediate_, w_.down)})
    if (!good) return good.error();
  for (const auto& [name, norm] : {std::pair{layer + "input_layernorm.weight", &embedding_norm_},
                                   {layer + "hidden_norm.weight", &hidden_norm_},
                                   {layer + "post_attention_layernorm.weight", &mlp_norm_},
                                   {std::string("norm.weight"), &norm_}}) {
    auto weights = eagle_norm(tensors_, name, H);
    if (!weights) return weights.error();
    *norm = std::move(weights).value();
  }
  for (auto& [buffer, width] : {std::pair{&taps_in_, feature_size()},
                                {&g_, H},
                                {&z_, 2 * H},
                                {&part_, H},
                                {&q_, q},
                                {&k_, kv},
                                {&v_, kv},
                                {&attended_, q},
                                {&gate_, intermediate_},
                                {&up_, intermediate_}})
    *buffer = Buffer<float>(kEagleRows * width);
  logits_     = Buffer<float>(t.vocab_size);
  scratch_    = Buffer<std::byte>(ops_.scratch_bytes({.rows         = kEagleRows,
                                                      .hidden       = std::max({feature_size(), 2 * H, q}),
                                                      .intermediate = intermediate_,
                                                      .heads        = heads_,
                                                      .head_dim     = head_dim_,
                                                      .experts      = 1,
                                                      .top_k        = 1,
                                                      .threads      = on_.threads->threads()}));
  on_.scratch = scratch_.view();
  return Ok{};
}

int64_t Eagle::weight_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_.tensors()) bytes += static_cast<int64_t>(tensor.bytes.size());
  return bytes;
}

void Eagle::restart(State& state, int64_t position) const {
  const auto size = static_cast<size_t>(kEagleSlots * kv_heads_ * head_dim_);
  state.first = state.end = position;
  state.keys.resize(size), state.values.resize(size);
  state.output.clear();
}

void Eagle::read(State& state, View<const float, 2> features, std::span<const TokenId> next_tokens) {
  const int64_t T = features.extent(0), H = hidden_;
  FATHOM_EXPECT(features.extent(1) == feature_size() && std::ssize(next_tokens) == T && !state.keys.empty(),
                "each position has its residuals and the token after it");
  for (int64_t begin = 0; begin < T; begin += kEagleRows) {
    const int64_t rows = std::min(kEagleRows, T - begin);
    const auto taps    = taps_in_.as({rows, feature_size()});
    std::copy_n(&features(begin, 0), rows * feature_size(), taps.data());
    if (norm_before_fc_)
      for (int64_t at = 0; at < rows * feature_size(); at += H) {
        float* tap = taps.data() + at;
        double sum = 0;
        for (int64_t i = 0; i < H; ++i) sum += static_cast<double>(tap[i]) * static_cast<double>(tap[i]);
        const auto scale = static_cast<float>(1 / std::sqrt(sum / static_cast<double>(H) + eps_));
        for (int64_t i = 0; i < H; ++i) tap[i] *= scale;
      }
    ops_.linear(taps, w_.fc, {}, Output::overwrite, g_.as({rows, H}), on_);
    layer(state, state.end, next_tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)));
    state.end += rows;
    state.output.assign(g_.data() + (rows - 1) * H, g_.data() + rows * H);
  }
}

void Eagle::layer(State& state, int64_t first, std::span<const TokenId> tokens) {
  const int64_t rows = std::ssize(tokens), H = hidden_, q_size = heads_ * head_dim_,
                kv = kv_heads_ * head_dim_;
  const auto g = g_.as({rows, H}), part = part_.as({rows, H}), z = z_.as({rows, 2 * H});
  const auto join = [&](int64_t half) {
    for (int64_t r = 0; r < rows; ++r) std::copy_n(&part(r, 0), H, &z(r, half * H));
  };
  const std::vector<int32_t> ids(tokens.begin(), tokens.end());
  ops_.embedding(View<const int32_t, 1>(ids.data(), {rows}), target_.weights.embedding, part, on_);
  ops_.rmsnorm(part, embedding_norm_.view(), eps_, part, on_);
  join(0);
  ops_.rmsnorm(g, hidden_norm_.view(), eps_, part, on_);
  join(1);
  ops_.linear(z, w_.q, {}, Output::overwrite, q_.as({rows, q_size}), on_);
  ops_.linear(z, w_.k, {}, Output::overwrite, k_.as({rows, kv}), on_);
  ops_.linear(z, w_.v, {}, Output::overwrite, v_.as({rows, kv}), on_);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t position = first + r, slot = position % kEagleSlots;
    rotate(q_.data() + r * q_size, heads_, position);
    rotate(k_.data() + r * kv, kv_heads_, position);
    std::copy_n(k_.data() + r * kv, kv, state.keys.data() + slot * kv);
    std::copy_n(v_.data() + r * kv, kv, state.values.data() + slot * kv);
    // Before later rows overwrite the slots of its window.
    attend(state, position, q_.data() + r * q_size, attended_.data() + r * q_size);
  }
  ops_.linear(attended_.as({rows, q_size}), w_.o, {}, Output::add, g, on_);
  ops_.rmsnorm(g, mlp_norm_.view(), eps_, part, on_);
  ops_.linear(part, w_.gate, {}, Output::overwrite, gate_.as({rows, intermediate_}), on_);
  ops_.linear(part, w_.up, {}, Output::overwrite, up_.as({rows, intermediate_}), on_);
  for (int64_t i = 0; i < rows * intermediate_; ++i) {
    const float gate = gate_.data()[i];
    gate_.data()[i]  = gate / (1 + std::exp(-gate)) * up_.data()[i];
  }
  ops_.linear(gate_.as({rows, intermediate_}), w_.down, {}, Output::add, g, on_);
}

void Eagle::rotate(float* heads, int64_t count, int64_t position) const {
  const int64_t half = head_dim_ / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) * std::pow(theta_, -static_cast<double>(i) / static_cast<double>(half));
    const auto cos = static_cast<float>(std::cos(angle)), sin = static_cast<float>(std::sin(angle));
    for (int64_t h = 0; h < count; ++h) {
      float &a = heads[h * head_dim_ + i], &b = heads[h * head_dim_ + half + i];
      const float rotated = a * cos - b * sin;
      b                   = b * cos + a * sin;
      a                   = rotated;
    }
  }
}

void Eagle::attend(const State& state, int64_t position, const float* q, float* out) const {
  const int64_t first = std::max(state.first, position - kWindow + 1), group = heads_ / kv_heads_;
  const int64_t kv = kv_heads_ * head_dim_;
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim_)));
  float weights[kWindow];
  for (int64_t h = 0; h < heads_; ++h) {
    const float* query   = q + h * head_dim_;
    const int64_t column = h / group * head_dim_;
    float most = -INFINITY, sum = 0;
    for (int64_t p = first; p <= position; ++p) {
      const float* key = state.keys.data() + p % kEagleSlots * kv + column;
      float dot        = 0;
      for (int64_t d = 0; d < head_dim_; ++d) dot += query[d] * key[d];
      weights[p - first] = dot * scale;
      most               = std::max(most, dot * scale);
    }
    float* into = out + h * head_dim_;
    std::fill_n(into, head_dim_, 0.0f);
    for (int64_t p = first; p <= position; ++p) {
      const float weight = std::exp(weights[p - first] - most);
      const float* value = state.values.data() + p % kEagleSlots * kv + column;
      sum += weight;
      for (int64_t d = 0; d < head_dim_; ++d) into[d] += weight * value[d];
    }
    for (int64_t d = 0; d < head_dim_; ++d) into[d] /= sum;
  }
}

std::vector<Eagle::Drafted> Eagle::draft(State& state, int64_t count, double least) {
  std::vector<Drafted> drafted;
  for (const auto& place : draft_places(state, count, 1, least)) drafted.push_back(place.front());
  return drafted;
}

// Drafted positions are written behind the last one read and are read over when the true ones come: attention
// reads kWindow of the kWindow + kAhead positions that are kept.
std::vector<std::vector<Eagle::Drafted>> Eagle::draft_places(State& state, int64_t count, int64_t width,
                                                             double least) {
  const int64_t H = hidden_, V = target_.config.vocab_size;
  FATHOM_EXPECT(count <= kAhead && width >= 1 && width <= V,
                "more tokens are drafted than positions are kept for, or than there are");
  std::vector<std::vector<Drafted>> places;
  if (state.output.empty()) return places;
  std::copy(state.output.begin(), state.output.end(), g_.data());
  const float* logits = logits_.data();
  std::vector<TokenId> order;
  double product = 1;
  for (int64_t n = 0; n < count; ++n) {
    if (n > 0) layer(state, state.end + n - 1, std::span(&places.back().front().token, 1));
    ops_.rmsnorm(g_.as({1, H}), norm_.view(), eps_, part_.as({1, H}), on_);
    ops_.linear(part_.as({1, H}), target_.weights.unembedding, {}, Output::overwrite, logits_.as({1, V}),
                on_);
    const float* best = std::max_element(logits, logits + V);
    double sum        = 0;
    for (int64_t v = 0; v < V; ++v) sum += std::exp(static_cast<double>(logits[v] - *best));
    if (!(sum > 0)) break;  // NaN: weights that are damaged draft nothing
    product /= sum;
    if (product < least) break;
    order.assign(1, static_cast<TokenId>(best - logits));
    if (width > 1) {
      order.resize(static_cast<size_t>(V));
      for (size_t v = 0; v < order.size(); ++v) order[v] = static_cast<TokenId>(v);
      std::partial_sort(order.begin(), order.begin() + width, order.end(), [&](TokenId a, TokenId b) {
        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
      });
      order.resize(static_cast<size_t>(width));
    }
    places.emplace_back();
    for (const TokenId token : order)
      places.back().push_back(
          {.token = token, .probability = std::exp(static_cast<double>(logits[token] - *best)) / sum});
  }
  return places;
}

}  // namespace fathom::model
