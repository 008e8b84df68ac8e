// Three ways to turn a layer's weights into the same 4-bit format. They differ in what they know of the
// layer's inputs, in the time they take, and in how far its outputs move.
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "layer.h"
#include "model/calibration_samples.h"

namespace fathom::lab::awq_gptq {
namespace {

// Mixtures of 16 directions with noise, and every 61st input ten times as large: what language models'
// activations have, correlations and a few outlier channels.
void fill_tokens(float* to, int64_t tokens, int64_t inputs, uint64_t seed) {
  std::mt19937_64 random(seed);
  model::Samples x = model::correlated_samples(tokens, inputs, 16, 1.0f, random);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 5; k < inputs; k += 61) x(t, k) *= 10;
  std::ranges::copy(x.numbers, to);
}

}  // namespace

Layer::Layer(const Point& at, Arena& arena)
    : tokens(at["tokens"]),
      format{.bits = 4, .group = at["group"]},
      w(arena.input<float>({at["outputs"], at["inputs"]}, Normal{})),
      x(arena.input<float>(
          {tokens + kUnseen, at["inputs"]},
          generate<float>([n = tokens + kUnseen, inputs = at["inputs"]](float* to, int64_t, uint64_t seed) {
            fill_tokens(to, n, inputs, seed);
          }))),
      out(arena.output<float>({kUnseen, at["outputs"]})) {}

// The layer before quantization. Rounding to nearest moves a weight by a step / sqrt(12) in the mean square,
// and an output by the root of the sum of (that x(k))^2. The tolerance of an output is 8 times that, so that
// of all outputs' rms is twice.
Sum Layer::expected(int64_t t, int64_t n) const {
  const View<const float, 2> unseen = unseen_tokens();
  double value = 0, square = 0;
  for (int64_t first = 0; first < w.extent(1); first += format.group) {
    const int64_t last = std::min(first + format.group, w.extent(1));
    double least = 0, largest = 0, squares = 0;
    for (int64_t k = first; k < last; ++k) {
      const double weight = w(n, k), input = unseen(t, k);
      value += weight * input;
      squares += input * input;
      least   = std::min(least, weight);
      largest = std::max(largest, weight);
    }
    const double step = (largest - least) / ((1 << format.bits) - 1);
    square += step * step / 12 * squares;
  }
  constexpr double kFp32 = 0x1p-24;
  return {.value = value, .magnitude = 8 * std::sqrt(square) / (4 * kFp32)};
}

void Layer::metrics(CallMetrics& metrics) const {
  const View<const float, 2> unseen = unseen_tokens();
  double errors = 0, values = 0;
  for (int64_t t = 0; t < kUnseen; ++t)
    for (int64_t n = 0; n < w.extent(0); ++n) {
      double exact = 0;
      for (int64_t k = 0; k < w.extent(1); ++k) exact += static_cast<double>(w(n, k)) * unseen(t, k);
      errors += (out(t, n) - exact) * (out(t, n) - exact);
      values += exact * exact;
    }
  if (values > 0) metrics["relative_output_error"] = {std::sqrt(errors / values), "lower"};
}

namespace {

const Experiment<Layer> awq_gptq{
    .question =
        "How much less do a layer's outputs move when its 4-bit weights are chosen with calibration tokens, "
        "and "
        "what does choosing them take?",
    .axes     = {{"group", {128, 64}}, {"outputs", {128}}, {"inputs", {256}}, {"tokens", {512}}},
    .check_at = {{"group", {64}}, {"outputs", {0, 1, 13}}, {"inputs", {1, 7, 64, 129}}, {"tokens", {300}}},
    .variants =
        {
            {.id         = "round_to_nearest",
             .launch     = round_to_nearest,
             .techniques = {"weight_quantization"},
             .idea       = "each weight becomes the nearest of its group's 16 numbers",
             .prediction = predict::nothing()},
            {.id         = "awq",
             .launch     = awq,
             .techniques = {"weight_quantization", "awq"},
             .idea       = "inputs with large activations get finer steps",
             .prediction = predict::ratio(0.004)},
            {.id         = "gptq",
             .launch     = gptq,
             .techniques = {"weight_quantization", "gptq"},
             .idea       = "later weights make good what rounding the earlier ones lost",
             .prediction = predict::ratio(0.016)},
            {.id         = "act_order",
             .launch     = act_order,
             .techniques = {"weight_quantization", "gptq"},
             .idea       = "the same, the inputs with the largest activations first",
             .prediction = predict::ratio(0.016)},
        },
    .catalog = {"quant-009", "quant-010"},
};
FATHOM_REGISTER(awq_gptq);

}  // namespace
}  // namespace fathom::lab::awq_gptq
