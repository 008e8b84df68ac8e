#include "model/processed_weights.h"

#include <utility>

#include "model/contiguous_experts.h"

namespace fathom::model {
namespace {

Buffer<float> as_floats(const NormWeights& weights) {
  return std::visit(
      [](const auto& w) {
        Buffer<float> floats(w.extent(0));
        for (int64_t i = 0; i < w.extent(0); ++i) floats.data()[i] = static_cast<float>(w(i));
        return floats;
      },
      weights);
}

}  // namespace

ProcessedWeights::ProcessedWeights(const Config& config, const Weights& from, ThreadPool& threads,
                                   bool screening)
    : weights(from), norm(as_floats(from.norm)) {
  if (const auto* plain = std::get_if<View<const bf16, 2>>(&weights.unembedding); plain && screening)
    screen = std::make_unique<UnembeddingScreen>(*plain, threads);
  for (const LayerWeights& w : weights.layers) {
    Layer& layer = layers.emplace_back();
    layer        = {.attn_norm  = as_floats(w.attn_norm),
                    .mlp_norm   = as_floats(w.mlp_norm),
                    .transposed = {},
                    .experts    = {.mlp1      = w.mlp1,
                                   .mlp1_bias = w.mlp1_bias,
                                   .mlp2      = w.mlp2,
                                   .mlp2_bias = w.mlp2_bias,
                                   .limit     = static_cast<float>(config.swiglu_limit),
                                   .alpha     = static_cast<float>(config.swiglu_alpha)}};
    for (kernels::ExpertMatrices* matrices : {&layer.experts.mlp1, &layer.experts.mlp2}) {
      auto* plain = std::get_if<View<const bf16, 3>>(matrices);
      if (!plain || plain->contiguous()) continue;
      layer.transposed.push_back(contiguous_experts(*plain, threads));
      *plain = layer.transposed.back().as({plain->extent(0), plain->extent(1), plain->extent(2)});
    }
  }
}

int64_t ProcessedWeights::copied_bytes() const {
  int64_t bytes = screen ? screen->bytes() : 0;
  for (const Layer& layer : layers)
    for (const Buffer<bf16>& copy : layer.transposed) bytes += copy.size() * int64_t{sizeof(bf16)};
  return bytes;
}

}  // namespace fathom::model
