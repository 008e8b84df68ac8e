#include "model/quantize.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <iterator>
#include <variant>

#include "core/int8_group.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"
#include "model/weights.h"

namespace fathom::model {
namespace {

namespace fs = std::filesystem;
using Json   = nlohmann::json;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void make(const fs::path& folder, bool bf16, int64_t layers = 2) {
  ThreadPool pool(1);
  ASSERT_TRUE(make_synthetic_checkpoint({.layers = layers, .seed = 7, .bf16 = bf16}, folder, pool));
}

Result<Quantized> quantise(const fs::path& from, const fs::path& to, int threads = 2,
                           DenseFormat dense = DenseFormat::bf16) {
  ThreadPool pool(threads);
  return quantize_model(from, to, dense, pool);
}

std::string refusal(const fs::path& from, const fs::path& to) {
  const auto quantized = quantise(from, to);
  return quantized ? "(accepted)" : quantized.error().message;
}

// The tensors of a file in the form of tiny_checkpoint.h, so that a test can change some.
std::vector<RawTensor> raw_tensors(const fs::path& folder) {
  const auto read = Safetensors::open(folder).value();
  std::vector<RawTensor> raw;
  for (const auto& [name, t] : read.tensors())
    raw.push_back({name,
                   t.dtype == DType::bf16   ? "BF16"
                   : t.dtype == DType::int8 ? "I8"
                                            : "U8",
                   t.shape,
                   {reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()}});
  return raw;
}

void expect_same_tensors(const fs::path& a, const fs::path& b) {
  const auto left = raw_tensors(a), right = raw_tensors(b);
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].name, right[i].name);
    EXPECT_EQ(left[i].dtype, right[i].dtype);
    EXPECT_EQ(left[i].shape, right[i].shape);
    EXPECT_TRUE(left[i].bytes == right[i].bytes) << left[i].name;
  }
}

double nearest(double x, const std::array<double, 8>& magnitudes, double scale) {
  double best = 0;
  for (const double m : magnitudes)
    if (std::fabs(std::fabs(x) - m * scale) < std::fabs(std::fabs(x) - best)) best = m * scale;
  return best;
}

// Dequantizes all experts of one kind, in double, by the rule of the OCP MX standard.
double expected_error(const fs::path& folder, bool gate_up) {
  const auto tensors = Safetensors::open(folder).value();
  const auto weights = find_weights(read_config(folder / "config.json").value(), tensors).value();
  double errors = 0, squares = 0;
  for (const LayerWeights& layer : weights.layers) {
    const auto& w = std::get<View<const bf16, 3>>(gate_up ? layer.mlp1 : layer.mlp2);
    for (int64_t e = 0; e < w.extent(0); ++e)
      for (int64_t o = 0; o < w.extent(1); ++o)
        for (int64_t block = 0; block < w.extent(2); block += 32) {
          double largest = 0;
          for (int64_t i = block; i < block + 32; ++i)
            largest = std::max(largest, std::fabs(static_cast<double>(static_cast<float>(w(e, o, i)))));
          const double scale = std::exp2(std::floor(std::log2(largest)) - 2);
          for (int64_t i = block; i < block + 32; ++i) {
            const double x = static_cast<float>(w(e, o, i));
            const double d = std::fabs(x) - nearest(x, {0, 0.5, 1, 1.5, 2, 3, 4, 6}, scale);
            errors += d * d, squares += x * x;
          }
        }
  }
  return std::sqrt(errors / squares);
}

TEST(Quantize, EqualsTheSyntheticMxfp4Checkpoint) {
  const TempFolder folder;
  make(folder.path() / "bf16", true);
  make(folder.path() / "mxfp4", false);
  for (const int threads : {1, 3}) {
    const auto quantized = quantise(folder.path() / "bf16", folder.path() / "out", threads);
    ASSERT_TRUE(quantized) << quantized.error().message;
    expect_same_tensors(folder.path() / "out", folder.path() / "mxfp4");
    EXPECT_EQ(text_of(folder.path() / "out/config.json"), text_of(folder.path() / "mxfp4/config.json"));
    EXPECT_EQ(quantized->bytes_read,
              footprint(read_config(folder.path() / "bf16/config.json").value()).checkpoint_bytes);
    EXPECT_EQ(quantized->bytes_written,
              static_cast<int64_t>(fs::file_size(folder.path() / "out/model.safetensors")));
    EXPECT_NEAR(quantized->gate_up_error, expected_error(folder.path() / "bf16", true), 1e-12);
    EXPECT_NEAR(quantized->down_error, expected_error(folder.path() / "bf16", false), 1e-12);
  }
}

TEST(Quantize, ReadsShardsAndCopiesOtherFiles) {
  const TempFolder folder;
  const fs::path from = folder.path() / "bf16", to = folder.path() / "out";
  make(from, true);
  make(folder.path() / "mxfp4", false);
  auto all = raw_tensors(from);
  // A tensor that the config does not name, with an odd size and another type.
  all.push_back({"extra", "I32", {1, 3}, "twelve bytes"});
  const std::vector<RawTensor> first(all.begin(), all.begin() + 5), rest(all.begin() + 5, all.end());
  fs::remove(from / "model.safetensors");
  write_file(from / "model-00000-of-00002.safetensors", safetensors_file(first));
  write_file(from / "model-00001-of-00002.safetensors", safetensors_file(rest));
  Json index;
  for (const RawTensor& t : first) index["weight_map"][t.name] = "model-00000-of-00002.safetensors";
  for (const RawTensor& t : rest) index["weight_map"][t.name] = "model-00001-of-00002.safetensors";
  write_file(from / "model.safetensors.index.json", index.dump());
  write_file(from / "tokenizer.json", "{\"any\": \"thing\"}\n");
  write_file(from / "generation_config.json", "");
  write_file(from / "README.md", "words");
  fs::create_directory(from / "folder.json");

  const auto quantized = quantise(from, to);
  ASSERT_TRUE(quantized) << quantized.error().message;
  const auto read = Safetensors::open(to).value();
  const auto made = Safetensors::open(folder.path() / "mxfp4").value();
  EXPECT_EQ(read.tensors().size(), made.tensors().size() + 1);
  ASSERT_NE(read.find("extra"), nullptr);
  EXPECT_EQ(read.find("extra")->dtype, DType::int32);
  EXPECT_EQ(std::memcmp(read.find("extra")->bytes.data(), "twelve bytes", 12), 0);
  for (const auto& [name, t] : made.tensors())
    EXPECT_TRUE(std::ranges::equal(read.find(name)->bytes, t.bytes)) << name;
  EXPECT_EQ(text_of(to / "tokenizer.json"), "{\"any\": \"thing\"}\n");
  EXPECT_TRUE(fs::exists(to / "generation_config.json"));
  EXPECT_FALSE(fs::exists(to / "model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(to / "README.md"));
  EXPECT_FALSE(fs::exists(to / "folder.json"));
}

TEST(Quantize, KeepsTheConfig) {
  const TempFolder folder;
  make(folder.path() / "bf16", true);
  Json config    = Json::parse(text_of(folder.path() / "bf16/config.json"));
  config["mine"] = {1, 2.5, nullptr};
  write_file(folder.path() / "bf16/config.json", config.dump());
  ASSERT_TRUE(quantise(folder.path() / "bf16", folder.path() / "out"));
  Json written = Json::parse(text_of(folder.path() / "out/config.json"));
  EXPECT_EQ(written["quantization_config"]["quant_method"], "mxfp4");
  written.erase("quantization_config");
  EXPECT_EQ(written, config);
}

TEST(Quantize, RefusesWithOneClearSentence) {
  const TempFolder folder;
  const fs::path bf16 = folder.path() / "bf16", mxfp4 = folder.path() / "mxfp4", to = folder.path() / "to";
  make(bf16, true);
  make(mxfp4, false);
  EXPECT_NE(refusal(mxfp4, to).find("MXFP4 already"), std::string::npos) << refusal(mxfp4, to);
  EXPECT_NE(refusal(bf16, bf16).find("another folder"), std::string::npos) << refusal(bf16, bf16);
  EXPECT_NE(refusal(folder.path() / "none", to).find("config.json"), std::string::npos);

  const auto tensors = raw_tensors(bf16);
  for (const auto& [number, code] : {std::pair("inf", 0x7f80), {"nan", 0x7fc1}, {"-inf", 0xff80}}) {
    auto spoilt = tensors;
    for (RawTensor& t : spoilt)
      if (t.name == "model.layers.1.mlp.experts.down_proj") {
        const int64_t place = (3 * 96 + 95) * 64 + 17;  // in [E, in, out]: expert 3, input 95, output 17
        t.bytes[static_cast<size_t>(2 * place)]     = static_cast<char>(code & 255);
        t.bytes[static_cast<size_t>(2 * place + 1)] = static_cast<char>(code >> 8);
      }
    write_file(bf16 / "model.safetensors", safetensors_file(spoilt));
    const std::string why = refusal(bf16, to);
    EXPECT_NE(why.find("model.layers.1.mlp.experts.down_proj"), std::string::npos) << number << ": " << why;
    EXPECT_NE(why.find("expert 3, output 17"), std::string::npos) << number << ": " << why;
  }
  write_file(bf16 / "model.safetensors", safetensors_file(tensors));

  Json config                 = Json::parse(text_of(bf16 / "config.json"));
  config["intermediate_size"] = 97;
  write_file(bf16 / "config.json", config.dump());
  EXPECT_NE(refusal(bf16, to).find("missing or do not fit"), std::string::npos) << refusal(bf16, to);
  EXPECT_FALSE(fs::exists(to / "config.json"));
  EXPECT_FALSE(fs::exists(to / "model.safetensors"));
}

// Widths that are not multiples of a block can be BF16 but not MXFP4.
TEST(Quantize, RefusesWidthsOfPartialBlocks) {
  const TempFolder folder;
  make(folder.path(), true, 1);
  Json config = Json::parse(text_of(folder.path() / "config.json"));
  auto all    = raw_tensors(folder.path());
  // Half the intermediate size: 48.
  config["intermediate_size"] = 48;
  for (RawTensor& t : all) {
    const size_t axis = t.name.ends_with("down_proj") ? 1 : t.shape.size() - 1;
    if (!t.name.ends_with("down_proj") && t.name.find("gate_up") == std::string::npos) continue;
    t.shape[axis] /= 2;
    t.bytes.resize(t.bytes.size() / 2);
  }
  write_file(folder.path() / "config.json", config.dump());
  write_file(folder.path() / "model.safetensors", safetensors_file(all));
  const std::string why = refusal(folder.path(), folder.path() / "to");
  EXPECT_NE(why.find("'intermediate_size' is 48"), std::string::npos) << why;
}

bool is_dense(const std::string& name) {
  return name == "lm_head.weight" || name == "model.embed_tokens.weight" || name.ends_with("_proj.weight");
}

// Every weight is within half a step of its group's scale, which is amax / 127, less than a bf16 ulp above.
TEST(QuantizeInt8, EveryDenseMatrixIsWithinHalfAStep) {
  const TempFolder folder;
  const fs::path bf16_folder = folder.path() / "bf16", mxfp4 = folder.path() / "mxfp4";
  make(bf16_folder, true);
  make(mxfp4, false);
  for (const int threads : {1, 3}) {
    const auto quantized = quantise(mxfp4, folder.path() / "out", threads, DenseFormat::int8);
    ASSERT_TRUE(quantized) << quantized.error().message;
    const auto before = Safetensors::open(mxfp4).value(),
               after  = Safetensors::open(folder.path() / "out").value();
    double errors[2] = {}, squares[2] = {};
    int64_t dense = 0;
    for (const auto& [name, t] : before.tensors()) {
      ASSERT_NE(after.find(name), nullptr) << name;
      if (!is_dense(name)) {
        EXPECT_TRUE(std::ranges::equal(after.find(name)->bytes, t.bytes)) << name;
        continue;
      }
      ++dense;
      const auto w = before.view<bf16, 2>(name).value();
      const auto q = after.view<int8_t, 2>(name).value();
      const auto s = after.view<bf16, 2>(name + "_scale").value();
      for (int64_t r = 0; r < w.extent(0); ++r)
        for (int64_t k0 = 0; k0 < w.extent(1); k0 += 32) {
          const int64_t k1   = std::min(k0 + 32, w.extent(1));
          const double scale = static_cast<float>(s(r, k0 / 32));
          double largest     = 0;
          for (int64_t k = k0; k < k1; ++k)
            largest = std::max(largest, std::fabs(static_cast<double>(static_cast<float>(w(r, k)))));
          ASSERT_GE(scale, largest / 127 * (1 - 1e-6)) << name;
          ASSERT_LE(scale, largest / 127 * (1 + 0x1p-7)) << name;
          for (int64_t k = k0; k < k1; ++k) {
            const double x = static_cast<float>(w(r, k)), d = q(r, k) * scale - x;
            ASSERT_LE(std::fabs(d), scale / 2 * (1 + 1e-6)) << name;
            errors[name.find("attn") == std::string::npos] += d * d;
            squares[name.find("attn") == std::string::npos] += x * x;
          }
        }
    }
    EXPECT_EQ(dense, 2 + 4 * 2);
    EXPECT_EQ(after.tensors().size(), before.tensors().size() + static_cast<size_t>(dense));
    EXPECT_NEAR(quantized->attention_error, std::sqrt(errors[0] / squares[0]), 1e-12);
    EXPECT_NEAR(quantized->embedding_error, std::sqrt(errors[1] / squares[1]), 1e-12);
    EXPECT_LT(quantized->attention_error, 0.01);
    EXPECT_EQ(quantized->gate_up_error, 0);
    const auto config = read_config(folder.path() / "out/config.json").value();
    EXPECT_TRUE(config.int8_dense && config.mxfp4_experts);
    int64_t bytes = 0;
    for (const auto& [name, t] : after.tensors()) bytes += static_cast<int64_t>(t.bytes.size());
    EXPECT_EQ(bytes, footprint(config).checkpoint_bytes);
  }
  // Experts in BF16 are quantised in the same pass.
  ASSERT_TRUE(quantise(bf16_folder, folder.path() / "both", 2, DenseFormat::int8));
  expect_same_tensors(folder.path() / "both", folder.path() / "out");
  EXPECT_EQ(text_of(folder.path() / "both/config.json"), text_of(folder.path() / "out/config.json"));
}

// The `original` layout has one matrix of the rows of q, k and v.
TEST(QuantizeInt8, OfTheOriginalLayoutHasTheSameNumbers) {
  const TempFolder folder;
  const fs::path hf = folder.path() / "hf", original = folder.path() / "original";
  make(hf, false, 1);
  const auto read = Safetensors::open(hf).value();
  const auto take = [&](const std::string& from, const std::string& to) -> RawTensor {
    const Tensor& t = *read.find(from);
    return {to,
            t.dtype == DType::bf16 ? "BF16" : "U8",
            t.shape,
            {reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()}};
  };
  const std::string layer = "model.layers.0.", block = "block.0.";
  std::vector<RawTensor> all;
  for (const std::string kind : {"weight", "bias"}) {
    RawTensor qkv = take(layer + "self_attn.q_proj." + kind, block + "attn.qkv." + kind);
    for (const std::string part : {"k", "v"}) {
      const RawTensor more = take(layer + "self_attn." + part + "_proj." + kind, "");
      qkv.bytes += more.bytes, qkv.shape[0] += more.shape[0];
    }
    all.push_back(qkv);
    all.push_back(take(layer + "self_attn.o_proj." + kind, block + "attn.out." + kind));
    all.push_back(take(layer + "mlp.router." + kind, block + "mlp.gate." + kind));
  }
  for (const auto& [from, to] :
       {std::pair("model.embed_tokens.weight", "embedding.weight"),
        {"lm_head.weight", "unembedding.weight"},
        {"model.norm.weight", "norm.scale"},
        {"model.layers.0.input_layernorm.weight", "block.0.attn.norm.scale"},
        {"model.layers.0.self_attn.sinks", "block.0.attn.sinks"},
        {"model.layers.0.post_attention_layernorm.weight", "block.0.mlp.norm.scale"},
        {"model.layers.0.mlp.experts.gate_up_proj_bias", "block.0.mlp.mlp1_bias"},
        {"model.layers.0.mlp.experts.down_proj_bias", "block.0.mlp.mlp2_bias"},
        {"model.layers.0.mlp.experts.gate_up_proj_blocks", "block.0.mlp.mlp1_weight.blocks"},
        {"model.layers.0.mlp.experts.gate_up_proj_scales", "block.0.mlp.mlp1_weight.scales"},
        {"model.layers.0.mlp.experts.down_proj_blocks", "block.0.mlp.mlp2_weight.blocks"},
        {"model.layers.0.mlp.experts.down_proj_scales", "block.0.mlp.mlp2_weight.scales"}})
    all.push_back(take(from, to));
  fs::create_directory(original);
  write_file(original / "model.safetensors", safetensors_file(all));
  fs::copy(hf / "config.json", original / "config.json");

  ASSERT_TRUE(quantise(hf, folder.path() / "a", 2, DenseFormat::int8));
  const auto quantized = quantise(original, folder.path() / "b", 2, DenseFormat::int8);
  ASSERT_TRUE(quantized) << quantized.error().message;
  const auto a_tensors = Safetensors::open(folder.path() / "a").value(),
             b_tensors = Safetensors::open(folder.path() / "b").value();
  const auto config    = read_config(folder.path() / "b/config.json").value();
  const auto a = find_weights(config, a_tensors).value(), b = find_weights(config, b_tensors).value();
  EXPECT_EQ(b.layout, Layout::original);
  const auto expect_same = [](const DenseMatrix& left, const DenseMatrix& right) {
    const auto &l = std::get<kernels::Int8Weights>(left), &r = std::get<kernels::Int8Weights>(right);
    ASSERT_EQ(l.values.size(), r.values.size());
    EXPECT_EQ(std::memcmp(l.values.data(), r.values.data(), static_cast<size_t>(l.values.size())), 0);
    EXPECT_EQ(std::memcmp(l.scales.data(), r.scales.data(), static_cast<size_t>(l.scales.bytes())), 0);
  };
  expect_same(a.embedding, b.embedding);
  expect_same(a.unembedding, b.unembedding);
  for (const auto part : {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v, &LayerWeights::out})
    expect_same(a.layers[0].*part, b.layers[0].*part);
}

TEST(QuantizeInt8, RefusesWithOneClearSentence) {
  const TempFolder folder;
  const fs::path from = folder.path() / "from", to = folder.path() / "to";
  make(from, false, 1);
  const auto refused = [&](const fs::path& of, const fs::path& into) {
    const auto quantized = quantise(of, into, 2, DenseFormat::int8);
    return quantized ? "(accepted)" : quantized.error().message;
  };
  ASSERT_TRUE(quantise(from, folder.path() / "int8", 2, DenseFormat::int8));
  EXPECT_NE(refused(folder.path() / "int8", to).find("int8 already"), std::string::npos);
  ThreadPool pool(1);
  EXPECT_NE(fake_quantize_model(folder.path() / "int8", to, ExpertFormat::fp8, pool)
                .error()
                .message.find("in int8"),
            std::string::npos);
  auto spoilt = raw_tensors(from);
  for (RawTensor& t : spoilt)
    if (t.name == "lm_head.weight") t.bytes[2 * 64 * 5 + 1] = '\x7f', t.bytes[2 * 64 * 5] = '\x80';
  write_file(from / "model.safetensors", safetensors_file(spoilt));
  EXPECT_NE(refused(from, to).find("lm_head.weight' holds an infinity or a NaN in row 5"), std::string::npos)
      << refused(from, to);
  EXPECT_FALSE(fs::exists(to / "model.safetensors"));
}

Result<Quantized> fake_quantise(const fs::path& from, const fs::path& to, ExpertFormat format) {
  ThreadPool pool(2);
  return fake_quantize_model(from, to, format, pool);
}

// MXFP4 read back is what the quantised checkpoint holds, and BF16 holds that exactly.
TEST(FakeQuantize, ToMxfp4IsTheQuantisedCheckpointInBf16) {
  const TempFolder folder;
  const fs::path bf16 = folder.path() / "bf16", mxfp4 = folder.path() / "mxfp4";
  make(bf16, true);
  write_file(bf16 / "tokenizer.json", "{}");
  ASSERT_TRUE(quantise(bf16, mxfp4));
  const auto once = fake_quantise(bf16, folder.path() / "once", ExpertFormat::mxfp4);
  ASSERT_TRUE(once) << once.error().message;
  const auto back = fake_quantise(mxfp4, folder.path() / "back", ExpertFormat::bf16);
  ASSERT_TRUE(back) << back.error().message;
  expect_same_tensors(folder.path() / "once", folder.path() / "back");
  EXPECT_NEAR(once->gate_up_error, expected_error(bf16, true), 1e-12);
  EXPECT_NEAR(once->down_error, expected_error(bf16, false), 1e-12);
  EXPECT_EQ(back->gate_up_error, 0);
  EXPECT_EQ(text_of(folder.path() / "back/tokenizer.json"), "{}");
  // It is a checkpoint with BF16 experts again.
  EXPECT_EQ(Json::parse(text_of(folder.path() / "back/config.json")),
            Json::parse(text_of(bf16 / "config.json")));
  ASSERT_TRUE(fake_quantise(bf16, folder.path() / "same", ExpertFormat::bf16));
  expect_same_tensors(folder.path() / "same", bf16);
}

// Every weight is within half a step of its format at its block's scale: E4M3 has 3 bits behind the point and
// subnormals below 2^-6 of the scale; E2M1's widest step is 2, of 6 at the largest weight of a block.
TEST(FakeQuantize, RoundsToFormatsAlongTheInputs) {
  const TempFolder folder;
  make(folder.path() / "bf16", true, 1);
  const auto weights_in = [&](const fs::path& at) {
    auto tensors = std::make_unique<Safetensors>(Safetensors::open(at).value());
    auto weights = find_weights(read_config(at / "config.json").value(), *tensors).value();
    return std::pair(std::move(tensors), std::move(weights));
  };
  const auto [from_tensors, from] = weights_in(folder.path() / "bf16");
  for (const ExpertFormat format : {ExpertFormat::fp8, ExpertFormat::nvfp4}) {
    const bool fp8  = format == ExpertFormat::fp8;
    const auto seen = fake_quantise(folder.path() / "bf16", folder.path() / "to", format);
    ASSERT_TRUE(seen) << seen.error().message;
    const auto [to_tensors, to] = weights_in(folder.path() / "to");
    for (const auto member : {&LayerWeights::mlp1, &LayerWeights::mlp2}) {
      const auto& a       = std::get<View<const bf16, 3>>(from.layers[0].*member);
      const auto& b       = std::get<View<const bf16, 3>>(to.layers[0].*member);
      const int64_t block = fp8 ? a.extent(2) : 16;
      double errors = 0, squares = 0;
      for (int64_t e = 0; e < a.extent(0); ++e)
        for (int64_t o = 0; o < a.extent(1); ++o)
          for (int64_t i0 = 0; i0 < a.extent(2); i0 += block) {
            double largest = 0;
            for (int64_t i = i0; i < i0 + block; ++i)
              largest = std::max(largest, std::fabs(static_cast<double>(static_cast<float>(a(e, o, i)))));
            for (int64_t i = i0; i < i0 + block; ++i) {
              const double x = static_cast<float>(a(e, o, i)), d = static_cast<float>(b(e, o, i)) - x;
              // BF16 rounds once more, and NVFP4's scale is itself a number of 3 bits behind the point.
              const double bound =
                  fp8 ? std::max(std::fabs(x) / 16, largest / 448 / 1024) : largest * 1.07 / 6;
              EXPECT_LE(std::fabs(d), bound + std::fabs(x) / 128);
              errors += d * d, squares += x * x;
            }
          }
      const double rms = std::sqrt(errors / squares);
      EXPECT_NEAR(rms, member == &LayerWeights::mlp1 ? seen->gate_up_error : seen->down_error, 1e-12);
      // Normal numbers lose 2.6 % in E4M3 and some 9 % in NVFP4.
      EXPECT_GT(rms, fp8 ? 0.02 : 0.07);
      EXPECT_LT(rms, fp8 ? 0.03 : 0.12);
    }
  }
}

TEST(FakeQuantize, RefusesWithOneClearSentence) {
  const TempFolder folder;
  const fs::path bf16 = folder.path() / "bf16", to = folder.path() / "to";
  make(bf16, true, 1);
  EXPECT_NE(fake_quantise(bf16, bf16, ExpertFormat::fp8).error().message.find("another folder"),
            std::string::npos);
  auto spoilt = raw_tensors(bf16);
  for (RawTensor& t : spoilt)
    if (t.name == "model.layers.0.mlp.experts.down_proj") t.bytes[1] = '\x7f', t.bytes[0] = '\x80';
  write_file(bf16 / "model.safetensors", safetensors_file(spoilt));
  const std::string why = fake_quantise(bf16, to, ExpertFormat::nvfp4).error().message;
  EXPECT_NE(why.find("down_proj' holds an infinity or a NaN in expert 0"), std::string::npos) << why;
  EXPECT_FALSE(fs::exists(to / "model.safetensors"));
}

}  // namespace
}  // namespace fathom::model
