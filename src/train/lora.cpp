#include "train/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/expect.h"
#include "core/rng.h"

namespace fathom::train {

int64_t max_lora_rank(const model::Config& config) {
  return std::min(config.hidden_size, config.num_key_value_heads * config.head_dim);
}
int64_t lora_parameters(const model::Config& config) {
  const int64_t H = config.hidden_size, q = config.num_attention_heads * config.head_dim,
                kv = config.num_key_value_heads * config.head_dim;
  return config.num_hidden_layers * (2 * (q + H) + 2 * (kv + H));
}

Lora::Lora(const model::Config& config, int64_t rank, double alpha)
    : rank_(rank), alpha_(alpha), scale_(static_cast<float>(alpha / static_cast<double>(rank))) {
  FATHOM_EXPECT(rank > 0 && rank <= max_lora_rank(config),
                "an adapter's rank is from 1 to the smallest width of the matrices");
  const int64_t H = config.hidden_size, q = config.num_attention_heads * config.head_dim,
                kv = config.num_key_value_heads * config.head_dim;
  const std::pair<const char*, std::pair<int64_t, int64_t>> matrices[] = {
      {"q_proj", {q, H}}, {"k_proj", {kv, H}}, {"v_proj", {kv, H}}, {"o_proj", {H, q}}};
  numbers_ = Buffer<float>(rank * lora_parameters(config));
  std::ranges::fill(all(), 0.0f);
  int64_t used = 0;
  for (int64_t l = 0; l < config.num_hidden_layers; ++l) {
    layers.emplace_back();
    LoraPair* const pairs[] = {&layers.back().q, &layers.back().k, &layers.back().v, &layers.back().out};
    for (size_t i = 0; i < std::size(matrices); ++i) {
      const auto& [name, shape] = matrices[i];
      const auto place          = [&](const char* which, int64_t rows, int64_t columns) {
        places_.push_back({.name = fmt::format("base_model.model.model.layers.{}.self_attn.{}.lora_{}.weight",
                                                        l, name, which),
                                    .shape  = {rows, columns},
                                    .offset = used,
                                    .size   = rows * columns,
                                    .matrix = true});
        const View<float, 2> view(numbers_.data() + used, {rows, columns});
        used += view.size();
        return view;
      };
      pairs[i]->a = place("A", rank, shape.second);
      pairs[i]->b = place("B", shape.first, rank);
    }
  }
}

void initialize(Lora& lora, uint64_t seed) {
  for (const Lora::Layer& layer : lora.layers)
    for (const LoraPair* pair : {&layer.q, &layer.k, &layer.v, &layer.out}) {
      const double bound = 1 / std::sqrt(static_cast<double>(pair->a.extent(1)));
      fill_uniform(pair->a.data(), pair->a.size(), ++seed, -bound, bound);
      std::fill_n(pair->b.data(), pair->b.size(), 0.0f);
    }
}

void merge(const Lora& lora, Parameters& parameters) {
  for (size_t l = 0; l < lora.layers.size(); ++l) {
    const Lora::Layer& from                                     = lora.layers[l];
    const LayerParameters& to                                   = parameters.layers[l];
    const std::pair<const LoraPair*, View<float, 2>> matrices[] = {
        {&from.q, to.q}, {&from.k, to.k}, {&from.v, to.v}, {&from.out, to.out}};
    for (const auto& [pair, w] : matrices)
      for (int64_t out = 0; out < w.extent(0); ++out)
        for (int64_t r = 0; r < lora.rank(); ++r) {
          const float factor = lora.scale() * pair->b(out, r);
          for (int64_t in = 0; in < w.extent(1); ++in) w(out, in) += factor * pair->a(r, in);
        }
  }
}

}  // namespace fathom::train
