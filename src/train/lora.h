// Low-rank adapters of attention's four matrices (Hu et al., "LoRA: Low-Rank Adaptation of Large Language
// Models", 2021): y = x W^T + scale (x A^T) B^T, with W frozen.
//
// Of a model, the adapters are rank (in + out) parameters a matrix: their gradients and the optimizer's two
// moments are all that training keeps beside the weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/view.h"
#include "model/config.h"
#include "train/parameters.h"

namespace fathom::train {

struct LoraPair {
  View<float, 2> a, b;  // [rank, in], [out, rank]
};

// The smallest width of the four matrices: more can express nothing more.
int64_t max_lora_rank(const model::Config& config);
// Of one rank, in all layers.
int64_t lora_parameters(const model::Config& config);

class Lora {
 public:
  struct Layer {
    LoraPair q, k, v, out;
  };

  // Zeros. scale is alpha / rank. The rank is from 1 to max_lora_rank().
  Lora(const model::Config& config, int64_t rank, double alpha);

  std::vector<Layer> layers;
  float scale() const { return scale_; }
  int64_t rank() const { return rank_; }
  double alpha() const { return alpha_; }

  std::span<float> all() const { return {numbers_.data(), static_cast<size_t>(numbers_.size())}; }
  // Names are PEFT's: "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
  const std::vector<TensorPlace>& places() const { return places_; }

 private:
  int64_t rank_;
  double alpha_;
  float scale_;
  Buffer<float> numbers_;
  std::vector<TensorPlace> places_;
};

// A uniform with PyTorch's bound for linear layers, 1 / sqrt(in) (kaiming_uniform with a = sqrt(5)); B is
// zero, so that the first step starts from the model itself.
void initialize(Lora& lora, uint64_t seed);

// Adds scale B A to the matrices.
void merge(const Lora& lora, Parameters& parameters);

}  // namespace fathom::train
