// A gpt-oss model's parameters, or their gradients, in fp32: one array, and a view of each tensor in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/view.h"
#include "model/config.h"
#include "model/weights.h"

namespace fathom::train {

struct LayerParameters {
  View<float, 1> attn_norm;               // [H]
  View<float, 2> q, k, v;                 // [heads Dh, H]
  View<float, 1> q_bias, k_bias, v_bias;  // [heads Dh]
  View<float, 1> sinks;                   // [heads]
  View<float, 2> out;                     // [H, heads Dh]
  View<float, 1> out_bias;                // [H]
  View<float, 1> mlp_norm;                // [H]
  View<float, 2> router;                  // [E, H]
  View<float, 1> router_bias;             // [E]
  View<float, 3> mlp1;                    // [E, 2I, H], even rows gate, odd rows up
  View<float, 2> mlp1_bias;               // [E, 2I]
  View<float, 3> mlp2;                    // [E, H, I]
  View<float, 2> mlp2_bias;               // [E, H]
};

// A tensor's place in Parameters::all(). Names and shapes are those of the views; model/weights.h's layout
// hf_bf16 says what a checkpoint makes of them.
struct TensorPlace {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;
  int64_t offset = 0, size = 0;
  bool matrix = false;  // weight decay applies to matrices alone
};

class Parameters {
 public:
  explicit Parameters(const model::Config& config);  // zeros

  View<float, 2> embedding, unembedding;  // [V, H]
  View<float, 1> norm;                    // [H]
  std::vector<LayerParameters> layers;

  std::span<float> all() const { return {numbers_.data(), static_cast<size_t>(numbers_.size())}; }
  const std::vector<TensorPlace>& places() const { return places_; }
  std::span<float> of(const TensorPlace& place) const {
    return all().subspan(static_cast<size_t>(place.offset), static_cast<size_t>(place.size));
  }

 private:
  Buffer<float> numbers_;
  std::vector<TensorPlace> places_;
};

// The numbers of a checkpoint, exactly: BF16, MXFP4 and int8 are fp32 numbers.
Parameters parameters_of(const model::Config& config, const model::Weights& weights);

// A hash of all numbers.
uint64_t fingerprint(const Parameters& parameters);

// To the numbers that a checkpoint in BF16 holds.
void round_to_bf16(Parameters& parameters);

// Normal with a deviation of 0.02, and of 0.02 / sqrt(2 layers) where a matrix adds to the residual stream
// (GPT-2's rule); norms 1, biases and sinks 0.
void initialize(Parameters& parameters, uint64_t seed);

}  // namespace fathom::train
