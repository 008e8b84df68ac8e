#include "model/synthetic_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <variant>

#include "core/mxfp4_nvfp4.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "model/tiny_checkpoint.h"
#include "model/weights.h"

namespace fathom::model {
namespace {

using Json = nlohmann::json;

Config config_of(const SyntheticCheckpointOptions& options) {
  const auto text = synthetic_config(options);
  if (!text) throw std::runtime_error(text.error().message);
  const auto config = parse_config(*text, "config.json");
  if (!config) throw std::runtime_error(config.error().message);
  return *config;
}

// A synthetic checkpoint, opened.
struct Made {
  explicit Made(const SyntheticCheckpointOptions& options, int threads = 2) {
    ThreadPool pool(threads);
    const auto bytes = make_synthetic_checkpoint(options, folder.path(), pool);
    if (!bytes) throw std::runtime_error(bytes.error().message);
    config  = read_config(folder.path() / "config.json").value();
    tensors = Safetensors::open(folder.path()).value();
    weights = find_weights(config, tensors).value();
  }
  TempFolder folder;
  Config config;
  Safetensors tensors = Safetensors();
  Weights weights;
};

std::map<std::string, std::string> bytes_by_name(const Made& made) {
  std::map<std::string, std::string> all;
  for (const auto& [name, t] : made.tensors.tensors())
    all[name] = {reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()};
  return all;
}

struct Moments {
  double mean, deviation;
};

Moments moments(const std::vector<float>& x) {
  double sum = 0, squares = 0;
  for (const double v : x) sum += v, squares += v * v;
  const double n = static_cast<double>(x.size()), mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean)};
}

std::vector<float> floats(const Made& made, const std::string& name) {
  const Tensor* tensor = made.tensors.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  const auto* x = reinterpret_cast<const bf16*>(tensor->bytes.data());
  std::vector<float> wide;
  for (size_t i = 0; i < tensor->bytes.size() / 2; ++i) wide.push_back(static_cast<float>(x[i]));
  return wide;
}

std::vector<float> decoded(const Made& made, const std::string& name) {
  const auto values = made.tensors.find(name + "_blocks")->bytes;
  const auto scales = made.tensors.find(name + "_scales")->bytes;
  std::vector<float> wide(values.size() * 2);
  decode_mxfp4({reinterpret_cast<const uint8_t*>(values.data()), values.size()},
               {reinterpret_cast<const uint8_t*>(scales.data()), scales.size()}, wide);
  return wide;
}

// Parameters and bytes of the published checkpoints (OpenAI's gpt-oss model card).
TEST(SyntheticCheckpoint, ShapesAreThePublishedOnes) {
  const Footprint small = footprint(config_of({.shape = ModelShape::gpt_oss_20b}));
  EXPECT_EQ(small.parameters, 20'914'757'184);
  EXPECT_EQ(small.active_parameters, 3'608'307'264);
  EXPECT_EQ(small.checkpoint_bytes, 13'761'264'768);
  EXPECT_EQ(small.kv_bytes_per_token, 24'576);
  const Footprint large = footprint(config_of({.shape = ModelShape::gpt_oss_120b}));
  EXPECT_EQ(large.parameters, 116'829'156'672);
  EXPECT_EQ(large.checkpoint_bytes, 65'248'815'744);

  Json made            = Json::parse(synthetic_config({.shape = ModelShape::tiny}).value());
  const Json specified = tiny_config();
  for (const auto& [key, value] : specified.items()) {
    if (key == "quantization_config")
      EXPECT_EQ(made[key]["quant_method"], value["quant_method"]);
    else
      EXPECT_EQ(made[key], value) << key;
  }
}

TEST(SyntheticCheckpoint, OptionsReplaceTheShapesNumbers) {
  const Config c =
      config_of({.shape = ModelShape::gpt_oss_20b, .layers = 3, .experts = 2, .vocab = 512, .bf16 = true});
  EXPECT_EQ(c.num_hidden_layers, 3);
  EXPECT_EQ(c.layers, (std::vector{Attention::sliding, Attention::full, Attention::sliding}));
  EXPECT_EQ(c.num_local_experts, 2);
  EXPECT_EQ(c.num_experts_per_tok, 2);
  EXPECT_EQ(c.vocab_size, 512);
  EXPECT_FALSE(c.mxfp4_experts);
  EXPECT_EQ(config_of({.shape = ModelShape::gpt_oss_20b}).eos_token_ids, std::vector<int64_t>{200002});
  EXPECT_EQ(c.eos_token_ids, std::vector<int64_t>{2});
}

TEST(SyntheticCheckpoint, InvalidOptionsAreRefused) {
  const TempFolder folder;
  ThreadPool pool(1);
  for (const SyntheticCheckpointOptions& options :
       {SyntheticCheckpointOptions{.layers = 0}, SyntheticCheckpointOptions{.layers = int64_t{1} << 40},
        SyntheticCheckpointOptions{.experts = 0}, SyntheticCheckpointOptions{.experts = -1},
        SyntheticCheckpointOptions{.vocab = 2}, SyntheticCheckpointOptions{.vocab = int64_t{1} << 40}}) {
    EXPECT_FALSE(synthetic_config(options));
    EXPECT_FALSE(make_synthetic_checkpoint(options, folder.path() / "model", pool));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "model"));
}

TEST(SyntheticCheckpoint, WeightsFitTheirConfig) {
  for (const bool bf16 : {false, true}) {
    const Made made({.seed = 1, .bf16 = bf16});
    EXPECT_EQ(made.weights.layout, bf16 ? Layout::hf_bf16 : Layout::hf_mxfp4);
    int64_t bytes = 0;
    for (const auto& [name, tensor] : made.tensors.tensors())
      bytes += static_cast<int64_t>(tensor.bytes.size());
    EXPECT_EQ(bytes, footprint(made.config).checkpoint_bytes);
  }
}

// The deviations of the tiny shape, within five standard errors. MXFP4 rounding widens the experts' by up to
// 3 %.
TEST(SyntheticCheckpoint, TinyWeightsHaveTheirDeviations) {
  const Made made({.seed = 1});
  const auto expect = [](const std::vector<float>& x, double mean, double deviation, double slack = 0) {
    const double error = deviation / std::sqrt(static_cast<double>(x.size()));
    EXPECT_NEAR(moments(x).mean, mean, 5 * error);
    EXPECT_NEAR(moments(x).deviation, deviation, 5 * error / std::sqrt(2.0) + slack * deviation);
  };
  const std::string layer = "model.layers.1.";
  expect(floats(made, "model.embed_tokens.weight"), 0, 0.08);
  expect(floats(made, "lm_head.weight"), 0, 0.08);
  expect(floats(made, "model.norm.weight"), 1, 0.1);
  expect(floats(made, layer + "input_layernorm.weight"), 1, 0.1);
  expect(floats(made, layer + "post_attention_layernorm.weight"), 1, 0.1);
  expect(floats(made, layer + "self_attn.sinks"), 0, 0.5);
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    expect(floats(made, layer + "self_attn." + name + ".weight"), 0, 0.08);
    expect(floats(made, layer + "self_attn." + name + ".bias"), 0, 0.08);
  }
  expect(floats(made, layer + "mlp.router.weight"), 0, 0.08);
  expect(floats(made, layer + "mlp.router.bias"), 0, 0.08);
  expect(floats(made, layer + "mlp.experts.gate_up_proj_bias"), 0, 0.08);
  expect(floats(made, layer + "mlp.experts.down_proj_bias"), 0, 0.08);
  expect(decoded(made, layer + "mlp.experts.gate_up_proj"), 0, 1, 0.03);
  expect(decoded(made, layer + "mlp.experts.down_proj"), 0, 0.05, 0.03);
}

TEST(SyntheticCheckpoint, Mxfp4IsTheQuantizationOfBf16) {
  const Made bf16_model({.layers = 2, .seed = 5, .bf16 = true}), mxfp4({.layers = 2, .seed = 5});
  const auto expect_quantised = [](const ExpertMatrices& from, const ExpertMatrices& to) {
    const auto& wide  = std::get<View<const bf16, 3>>(from);
    const auto& coded = std::get<Mxfp4Matrices>(to);
    const int64_t in = wide.extent(2), G = in / kMxfp4Block;
    std::vector<float> row(static_cast<size_t>(in));
    std::vector<uint8_t> values(row.size() / 2), scales(static_cast<size_t>(G));
    for (int64_t e = 0; e < wide.extent(0); ++e)
      for (int64_t o = 0; o < wide.extent(1); ++o) {
        for (int64_t i = 0; i < in; ++i) row[static_cast<size_t>(i)] = static_cast<float>(wide(e, o, i));
        encode_mxfp4(row, values, scales);
        ASSERT_EQ(std::memcmp(values.data(), &coded.blocks(e, o, 0, 0), values.size()), 0) << e << ' ' << o;
        ASSERT_EQ(std::memcmp(scales.data(), &coded.scales(e, o, 0), scales.size()), 0) << e << ' ' << o;
      }
  };
  for (size_t l = 0; l < 2; ++l) {
    expect_quantised(bf16_model.weights.layers[l].mlp1, mxfp4.weights.layers[l].mlp1);
    expect_quantised(bf16_model.weights.layers[l].mlp2, mxfp4.weights.layers[l].mlp2);
  }
  const auto wide = bytes_by_name(bf16_model), coded = bytes_by_name(mxfp4);
  for (const auto& [name, bytes] : wide)
    if (!name.ends_with("_proj")) {
      EXPECT_EQ(coded.at(name), bytes) << name;
    }
}

TEST(SyntheticCheckpoint, WeightsAreAFunctionOfSeedAndName) {
  const auto reference = bytes_by_name(Made({.seed = 3}, 1));
  EXPECT_EQ(bytes_by_name(Made({.seed = 3}, 3)), reference);

  for (const auto& [name, bytes] : bytes_by_name(Made({.layers = 3, .seed = 3})))
    EXPECT_EQ(bytes, reference.at(name)) << name;

  // All tensors of a shape differ, within a model and between seeds. Scales have few values and may be equal.
  std::set<std::string> seen;
  for (const uint64_t seed : {uint64_t{3}, uint64_t{4}, uint64_t{3} << 32})
    for (const auto& [name, bytes] : bytes_by_name(Made({.seed = seed})))
      if (!name.ends_with("_scales")) {
        EXPECT_TRUE(seen.insert(bytes).second) << name;
      }
}

// At the published widths: the rms that each matrix gives to a vector of rms 1.
TEST(SyntheticCheckpoint, WideWeightsKeepVectorsNearUnitSize) {
  const Made made({.shape = ModelShape::gpt_oss_20b, .layers = 1, .experts = 1, .vocab = 96, .seed = 1});
  const auto gain = [](const std::vector<float>& matrix, double in) {
    return moments(matrix).deviation * std::sqrt(in);
  };
  const std::string layer = "model.layers.0.";
  EXPECT_NEAR(gain(floats(made, layer + "self_attn.q_proj.weight"), 2880), 1, 0.01);
  EXPECT_NEAR(gain(floats(made, layer + "self_attn.o_proj.weight"), 4096), 1, 0.01);
  EXPECT_NEAR(gain(floats(made, layer + "mlp.router.weight"), 2880), 1, 0.1);
  EXPECT_NEAR(gain(decoded(made, layer + "mlp.experts.gate_up_proj"), 2880), 3, 0.1);
  EXPECT_NEAR(gain(decoded(made, layer + "mlp.experts.down_proj"), 2880), 0.2, 0.01);
  EXPECT_NEAR(gain(floats(made, "lm_head.weight"), 2880), 2, 0.02);
  EXPECT_NEAR(moments(floats(made, "model.embed_tokens.weight")).deviation, 1, 0.01);
}

}  // namespace
}  // namespace fathom::model
