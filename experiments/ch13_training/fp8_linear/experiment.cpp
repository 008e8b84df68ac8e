// FP8 halves the time of a layer's product, but its inputs arrive in bf16: somebody has to look for a scale
// and round. When is the scale found, for how many numbers, and what do both cost, in time and in error?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "core/rng.h"
#include "kernels/quant/amax_history.h"
#include "kernels/quant/quantize.h"
#include "lab/metric.h"
#include "linear.h"

namespace fathom::lab::fp8_linear {
namespace {

using namespace kernels;

int64_t blocks_of(int64_t n) { return (n + 127) / 128; }

// The weights of a layer in all their forms. They are the same at every call.
struct Weights {
  int64_t outputs, inputs;
  std::vector<bf16> numbers;
  std::vector<fp8_e4m3> of_tensor, of_rows, of_blocks;
  std::vector<float> tensor_scale, row_scales, block_scales;

  Weights(int64_t outputs_, int64_t inputs_)
      : outputs(outputs_),
        inputs(inputs_),
        numbers(static_cast<size_t>(outputs * inputs)),
        of_tensor(numbers.size()),
        of_rows(numbers.size()),
        of_blocks(numbers.size()),
        tensor_scale(1),
        row_scales(static_cast<size_t>(outputs)),
        block_scales(static_cast<size_t>(blocks_of(outputs) * blocks_of(inputs))) {
    fill_normal(numbers.data(), outputs * inputs, 1, 0, 1 / std::sqrt(static_cast<double>(inputs)));
    const TensorScaled<fp8_e4m3> tensor{{of_tensor.data(), {outputs, inputs}}, {tensor_scale.data(), {1}}};
    tensor_scale_reference(matrix(), tensor);
    quantize_reference(matrix(), tensor);
    quantize_reference(
        matrix(), RowScaled<fp8_e4m3>{{of_rows.data(), {outputs, inputs}}, {row_scales.data(), {outputs}}});
    for (int64_t n = 0; n < outputs; n += 128)
      for (int64_t k = 0; k < inputs; k += 128) round_block(n, k);
  }

  View<const bf16, 2> matrix() const { return {numbers.data(), {outputs, inputs}}; }

 private:
  void round_block(int64_t first_row, int64_t first) {
    const int64_t last_row = std::min(first_row + 128, outputs), last = std::min(first + 128, inputs);
    float amax = 0;
    for (int64_t n = first_row; n < last_row; ++n)
      for (int64_t k = first; k < last; ++k) amax = std::max(amax, std::abs(float(matrix()(n, k))));
    const float scale = fp8_scale(amax, fp8_e4m3::max(), 0);
    block_scales[static_cast<size_t>(first_row / 128 * blocks_of(inputs) + first / 128)] = scale;
    for (int64_t n = first_row; n < last_row; ++n)
      for (int64_t k = first; k < last; ++k)
        of_blocks[static_cast<size_t>(n * inputs + k)] = fp8_e4m3(float(matrix()(n, k)) / scale);
  }
};

// The harness refills inputs many times: the last point's weights are kept.
const Weights& weights(int64_t outputs, int64_t inputs) {
  static std::unique_ptr<Weights> last;
  if (!last || last->outputs != outputs || last->inputs != inputs)
    last = std::make_unique<Weights>(outputs, inputs);
  return *last;
}

// An input that is a copy of one of these vectors.
template <class T, int Rank>
View<const T, Rank> weight_input(Arena& arena, const int64_t (&extents)[Rank], int64_t outputs,
                                 int64_t inputs, std::vector<T> Weights::*which) {
  return arena.input<T>(extents, generate<T>([=](T* to, int64_t n, uint64_t) {
                          std::copy_n((weights(outputs, inputs).*which).data(), n, to);
                        }));
}

void fill_activations(bf16* to, int64_t tokens, int64_t inputs, float outlier, uint64_t seed) {
  fill_normal(to, tokens * inputs, seed, 0, 1);
  for (int64_t t = 0; t < tokens; t += kOutlierTokens)
    for (int64_t k = kOutlierChannel; k < inputs; k += kOutlierChannels)
      to[t * inputs + k] = bf16(outlier * float(to[t * inputs + k]));
}

// The largest magnitude of another batch of activations: that of its outliers.
float amax_of_batch(int64_t tokens, int64_t inputs, float outlier, uint64_t seed) {
  const int64_t outliers = ((std::max<int64_t>(tokens, 1) - 1) / kOutlierTokens + 1) *
                           ((inputs - kOutlierChannel - 1) / kOutlierChannels + 1);
  std::vector<bf16> numbers(static_cast<size_t>(outliers));
  fill_normal(numbers.data(), outliers, seed, 0, 1);
  float amax = 0;
  for (const bf16 v : numbers) amax = std::max(amax, std::abs(float(v)));
  return outlier * amax;
}

constexpr int kCalibrationBatches = 64;

}  // namespace

Linear::Linear(const Point& at, Arena& arena)
    : tokens(at["tokens"]),
      inputs(at["inputs"]),
      outputs(at["outputs"]),
      outlier(at["outlier"]),
      x(arena.input<bf16>({tokens, inputs}, generate<bf16>([t = tokens, k = inputs, o = outlier](
                                                               bf16* to, int64_t, uint64_t seed) {
                            fill_activations(to, t, k, static_cast<float>(o), seed);
                          }))),
      calibrated_scale(arena.input<float>(
          {1}, generate<float>([t = tokens, k = inputs, o = outlier](float* to, int64_t, uint64_t seed) {
            AmaxHistory history({.history = kCalibrationBatches, .margin = kDelayed.margin}, fp8_e4m3::max());
            for (int batch = 0; batch < kCalibrationBatches; ++batch)
              history.record(amax_of_batch(t, k, static_cast<float>(o), seed + 1 + batch));
            *to = history.scale();
          }))),
      amax_history(arena.input<float>(
          {kDelayed.history},
          generate<float>([t = tokens, k = inputs, o = outlier](float* to, int64_t n, uint64_t seed) {
            for (int64_t i = 0; i < n; ++i)
              to[i] = amax_of_batch(t, k, static_cast<float>(o), seed + 1 + static_cast<uint64_t>(i));
          }))),
      w(weight_input(arena, {outputs, inputs}, outputs, inputs, &Weights::numbers)),
      w_of_tensor(weight_input(arena, {outputs, inputs}, outputs, inputs, &Weights::of_tensor)),
      w_of_rows(weight_input(arena, {outputs, inputs}, outputs, inputs, &Weights::of_rows)),
      w_of_blocks(weight_input(arena, {outputs, inputs}, outputs, inputs, &Weights::of_blocks)),
      tensor_scale(weight_input(arena, {1}, outputs, inputs, &Weights::tensor_scale)),
      row_scales(weight_input(arena, {outputs}, outputs, inputs, &Weights::row_scales)),
      block_scales(weight_input(arena, {blocks_of(outputs), blocks_of(inputs)}, outputs, inputs,
                                &Weights::block_scales)),
      out(arena.output<bf16>({tokens, outputs})),
      codes(arena.workspace<fp8_e4m3>({tokens, inputs})),
      scales(arena.workspace<float>({std::max<int64_t>(tokens * blocks_of(inputs), 1)})),
      amax(arena.workspace<float>({1})),
      cublas_scratch(arena.workspace<uint8_t>({int64_t{32} << 20})) {
  FATHOM_EXPECT(inputs % 16 == 0 && outputs % 16 == 0, "inputs and outputs are multiples of 16");
}

// The least: x in bf16, weights in e4m3.
Cost Linear::cost() const {
  return {.read      = x.bytes() + w_of_tensor.bytes(),
          .written   = out.bytes(),
          .flops     = 2.0 * static_cast<double>(tokens * outputs) * static_cast<double>(inputs),
          .flop_type = DType::fp8_e4m3};
}

// e4m3 rounds both numbers of a product, by at most 2^-4 of it; below 2^-6 of the unit its steps stop
// shrinking. The roundings of a sum's products are independent, so the sum's error grows as the root of their
// squares. (The unit here is that of the whole tensor, with the largest outlier that a batch may have.)
Sum Linear::expected(int64_t t, int64_t n) const {
  const double smallest =
      fp8_scale(6 * static_cast<float>(outlier), fp8_e4m3::max(), kDelayed.margin) * 0x1p-6;
  double value = 0, squares = 0;
  for (int64_t k = 0; k < inputs; ++k) {
    const double a = float(x(t, k)), b = float(w(n, k));
    value += a * b;
    squares += a * b * a * b + smallest * b * smallest * b;
  }
  return {.value = value, .magnitude = std::sqrt(squares), .length = 1, .accumulate = DType::fp8_e4m3};
}

namespace {

// Errors of rows of out against products in double of the bf16 numbers.
struct Errors {
  double squares = 0, errors = 0, largest = 0;
  int64_t numbers = 0;

  double snr_db() const { return 10 * std::log10(squares / errors); }
};

void add_row(Errors& to, const Linear& p, int64_t t) {
  constexpr int64_t kColumnStep = 8;
  for (int64_t n = 0; n < p.outputs; n += kColumnStep) {
    const double value = p.expected(t, n).value, error = float(p.out(t, n)) - value;
    to.squares += value * value;
    to.errors += error * error;
    to.largest = std::max(to.largest, std::abs(error));
    ++to.numbers;
  }
}

}  // namespace

void Linear::metrics(CallMetrics& metrics) const {
  if (out.size() == 0) return;
  Errors plain, outliers;
  constexpr int kRows = 8;
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = tokens * r / kRows / kOutlierTokens * kOutlierTokens;
    add_row(outliers, *this, t);
    if (tokens > 1) add_row(plain, *this, std::min(t + 7 * r + 1, tokens - 1));
  }
  // The values of other tokens have a deviation of 1.
  metrics["outlier_tokens_snr_db"] = {outliers.snr_db(), "higher"};
  if (plain.numbers == 0) return;
  metrics["snr_db"]    = {plain.snr_db(), "higher"};
  metrics["rms_error"] = {std::sqrt(plain.errors / static_cast<double>(plain.numbers)), "lower"};
  metrics["max_error"] = {plain.largest, "lower"};
}

namespace {

const std::vector<machine::Feature> kNeeds = {machine::Feature::wgmma, machine::Feature::clusters,
                                              machine::Feature::tma};

const Experiment<Linear> fp8_linear{
    .question =
        "A linear layer in FP8: when is the scale of its inputs found, for how many numbers, and what do "
        "both cost in time and in error?",
    .limit = Limit::tensor_flops,
    // A prompt's tokens in a layer of gpt-oss (2880 to 4096, Wqkv has 5120). Outliers of 64 times are those
    // of the language models of LLM.int8(); 16384 times are massive activations.
    .axes = {{"outlier", {64, 16384}}, {"tokens", {4096}}, {"inputs", {2880}}, {"outputs", {4096}}},
    // Around tiles of 128 x 256, of 128 x 192 and blocks of 128.
    .check_at = {{"outlier", {64}},
                 {"tokens", {0, 1, 129}},
                 {"inputs", {16, 144, 656}},
                 {"outputs", {16, 272}}},
    .variants =
        {
            {.id         = "bf16_gemm",
             .launch     = on_gpu(bf16_gemm),
             .techniques = {"tensor_cores"},
             .idea       = "the op gemm_bf16: nothing is quantised",
             .prediction = predict::share(0.37),
             .needs      = kNeeds},
            {.id         = "cublaslt_bf16",
             .idea       = "cublasLtMatmul in bf16, the fastest algorithm by trial",
             .prediction = predict::ratio(1),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cublaslt_bf16)},
            {.id         = "current_scaling",
             .launch     = on_gpu(current_scaling),
             .techniques = {"fp8"},
             .idea       = "amax of x, then x in e4m3, then the product: x is read twice",
             .prediction = predict::ratio(1.35),
             .needs      = kNeeds},
            {.id         = "delayed_scaling",
             .launch     = on_gpu(delayed_scaling),
             .techniques = {"fp8", "delayed_scaling"},
             .idea       = "the scale comes from the amax of 1024 earlier steps; the pass finds this step's",
             .prediction = predict::ratio(1.5),
             .needs      = kNeeds},
            {.id         = "static_scale",
             .launch     = on_gpu(static_scale),
             .techniques = {"fp8", "static_calibration"},
             .idea       = "the scale of a calibration: one pass over x, nothing is looked for",
             .prediction = predict::ratio(1.55),
             .needs      = kNeeds},
            {.id         = "per_channel",
             .launch     = on_gpu(per_channel),
             .techniques = {"fp8", "per_channel_scaling"},
             .idea       = "a scale for each token and each output channel, applied in the epilogue",
             .prediction = predict::ratio(1.5),
             .needs      = kNeeds},
            {.id         = "block_scales",
             .launch     = on_gpu(block_scales),
             .techniques = {"fp8", "block_scaling"},
             .idea       = "1 x 128 of x, 128 x 128 of w: sums of blocks are scaled and added in fp32",
             .prediction = predict::ratio(1.3),
             .needs      = kNeeds},
            {.id         = "cublaslt_fp8",
             .techniques = {"fp8"},
             .idea       = "current_scaling with cublasLtMatmul, the fastest algorithm by trial",
             .prediction = predict::ratio(1.35),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cublaslt_fp8)},
        },
    .backend = Backend::cuda,
    .catalog = {"quant-002", "quant-003", "quant-004", "quant-005", "quant-006"},
};
FATHOM_REGISTER(fp8_linear);

}  // namespace
}  // namespace fathom::lab::fp8_linear
