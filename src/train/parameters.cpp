#include "train/parameters.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "core/mxfp4_nvfp4.h"
#include "core/rng.h"

namespace fathom::train {
namespace {

// Hands out places one after another; without numbers it only counts.
class Placer {
 public:
  Placer(float* numbers, std::vector<TensorPlace>* places) : numbers_(numbers), places_(places) {}

  template <int Rank>
  View<float, Rank> place(std::string name, const int64_t (&extents)[Rank], bool matrix = false) {
    const View<float, Rank> view(numbers_ ? numbers_ + used_ : nullptr, extents);
    if (places_)
      places_->push_back({.name   = std::move(name),
                          .shape  = std::vector<int64_t>(extents, extents + Rank),
                          .offset = used_,
                          .size   = view.size(),
                          .matrix = matrix});
    used_ += view.size();
    return view;
  }
  int64_t used() const { return used_; }

 private:
  float* numbers_;
  std::vector<TensorPlace>* places_;
  int64_t used_ = 0;
};

void place_all(const model::Config& c, Placer& placer, Parameters& to) {
  const int64_t V = c.vocab_size, H = c.hidden_size, I = c.intermediate_size, E = c.num_local_experts;
  const int64_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  to.layers.clear();
  to.embedding = placer.place("model.embed_tokens.weight", {V, H}, true);
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const std::string layer = fmt::format("model.layers.{}.", l), attn = layer + "self_attn.",
                      mlp = layer + "mlp.";
    LayerParameters p;
    p.attn_norm   = placer.place(layer + "input_layernorm.weight", {H});
    p.q           = placer.place(attn + "q_proj.weight", {q, H}, true);
    p.q_bias      = placer.place(attn + "q_proj.bias", {q});
    p.k           = placer.place(attn + "k_proj.weight", {kv, H}, true);
    p.k_bias      = placer.place(attn + "k_proj.bias", {kv});
    p.v           = placer.place(attn + "v_proj.weight", {kv, H}, true);
    p.v_bias      = placer.place(attn + "v_proj.bias", {kv});
    p.sinks       = placer.place(attn + "sinks", {c.num_attention_heads});
    p.out         = placer.place(attn + "o_proj.weight", {H, q}, true);
    p.out_bias    = placer.place(attn + "o_proj.bias", {H});
    p.mlp_norm    = placer.place(layer + "post_attention_layernorm.weight", {H});
    p.router      = placer.place(mlp + "router.weight", {E, H}, true);
    p.router_bias = placer.place(mlp + "router.bias", {E});
    p.mlp1        = placer.place(mlp + "experts.gate_up_proj", {E, 2 * I, H}, true);
    p.mlp1_bias   = placer.place(mlp + "experts.gate_up_proj_bias", {E, 2 * I});
    p.mlp2        = placer.place(mlp + "experts.down_proj", {E, H, I}, true);
    p.mlp2_bias   = placer.place(mlp + "experts.down_proj_bias", {E, H});
    to.layers.push_back(p);
  }
  to.norm        = placer.place("model.norm.weight", {H});
  to.unembedding = placer.place("lm_head.weight", {V, H}, true);
}

void copy(const model::NormWeights& from, View<float, 1> to) {
  std::visit(
      [&](const auto& w) {
        for (int64_t i = 0; i < to.extent(0); ++i) to(i) = static_cast<float>(w(i));
      },
      from);
}
void copy(const model::DenseMatrix& from, View<float, 2> to) {
  std::visit(
      [&](const auto& w) {
        for (int64_t r = 0; r < to.extent(0); ++r)
          for (int64_t c = 0; c < to.extent(1); ++c) to(r, c) = kernels::weight_at(w, r, c);
      },
      from);
}
void copy(View<const bf16, 1> from, View<float, 1> to) {
  for (int64_t i = 0; i < to.extent(0); ++i) to(i) = static_cast<float>(from(i));
}
void copy(View<const bf16, 2> from, View<float, 2> to) {
  for (int64_t r = 0; r < to.extent(0); ++r)
    for (int64_t c = 0; c < to.extent(1); ++c) to(r, c) = static_cast<float>(from(r, c));
}
void copy(const model::ExpertMatrices& from, View<float, 3> to) {
  for (int64_t e = 0; e < to.extent(0); ++e)
    for (int64_t out = 0; out < to.extent(1); ++out) {
      const std::span row(&to(e, out, 0), static_cast<size_t>(to.extent(2)));
      if (const auto* packed = std::get_if<model::Mxfp4Matrices>(&from)) {
        const auto groups = static_cast<size_t>(packed->scales.extent(2));
        decode_mxfp4({&packed->blocks(e, out, 0, 0), groups * (kMxfp4Block / 2)},
                     {&packed->scales(e, out, 0), groups}, row);
        continue;
      }
      const auto& plain = std::get<View<const bf16, 3>>(from);
      for (size_t i = 0; i < row.size(); ++i)
        row[i] = static_cast<float>(plain(e, out, static_cast<int64_t>(i)));
    }
}

}  // namespace

Parameters::Parameters(const model::Config& config) {
  Placer count(nullptr, nullptr);
  place_all(config, count, *this);
  numbers_ = Buffer<float>(count.used());
  std::ranges::fill(all(), 0.0f);
  Placer placer(numbers_.data(), &places_);
  place_all(config, placer, *this);
}

Parameters parameters_of(const model::Config& config, const model::Weights& weights) {
  Parameters to(config);
  copy(weights.embedding, to.embedding);
  copy(weights.unembedding, to.unembedding);
  copy(weights.norm, to.norm);
  for (size_t l = 0; l < to.layers.size(); ++l) {
    const model::LayerWeights& w = weights.layers[l];
    const LayerParameters& p     = to.layers[l];
    copy(w.attn_norm, p.attn_norm), copy(w.mlp_norm, p.mlp_norm);
    copy(w.q, p.q), copy(w.k, p.k), copy(w.v, p.v), copy(w.out, p.out);
    copy(w.q_bias, p.q_bias), copy(w.k_bias, p.k_bias), copy(w.v_bias, p.v_bias),
        copy(w.out_bias, p.out_bias);
    copy(w.sinks, p.sinks);
    copy(w.router, p.router), copy(w.router_bias, p.router_bias);
    copy(w.mlp1, p.mlp1), copy(w.mlp1_bias, p.mlp1_bias);
    copy(w.mlp2, p.mlp2), copy(w.mlp2_bias, p.mlp2_bias);
  }
  return to;
}

uint64_t fingerprint(const Parameters& parameters) {
  return XXH3_64bits(parameters.all().data(), parameters.all().size_bytes());
}

void round_to_bf16(Parameters& parameters) {
  for (float& number : parameters.all()) number = static_cast<float>(bf16(number));
}

void initialize(Parameters& parameters, uint64_t seed) {
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(parameters.layers.size()));
  for (const TensorPlace& place : parameters.places()) {
    const std::span<float> numbers = parameters.of(place);
    const bool adds = place.name.ends_with("o_proj.weight") || place.name.ends_with("down_proj");
    ++seed;
    if (place.matrix)
      fill_normal(numbers.data(), place.size, seed, 0, adds ? residual : 0.02);
    else
      std::ranges::fill(numbers, place.name.ends_with("norm.weight") ? 1.0f : 0.0f);
  }
}

}  // namespace fathom::train
