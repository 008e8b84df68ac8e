#include "model/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>

#include "model/tiny_checkpoint.h"

namespace fathom::model {
namespace {

using Json = nlohmann::json;

constexpr int64_t H = 64, I = 96, E = 8, V = 384, kLayers = 4, kQ = 128, kKv = 32, kHeads = 8;

// Every byte encodes its tensor and place, and is no NaN as a scale.
std::string pattern(const std::string& name, int64_t bytes) {
  const size_t seed = std::hash<std::string>()(name);
  std::string data(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>((seed + i * 7 + i / 251) % 251);
  return data;
}

using RawTensors = std::map<std::string, RawTensor>;

RawTensors tiny_checkpoint(Layout layout) {
  RawTensors all;
  const auto add = [&](const std::string& name, const std::string& dtype, std::vector<int64_t> shape) {
    const int64_t size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    all[name]          = {name, dtype, shape, pattern(name, dtype == "U8" ? size : 2 * size)};
  };
  const bool original = layout == Layout::original;
  add(original ? "embedding.weight" : "model.embed_tokens.weight", "BF16", {V, H});
  add(original ? "unembedding.weight" : "lm_head.weight", "BF16", {V, H});
  add(original ? "norm.scale" : "model.norm.weight", "BF16", {H});
  for (int64_t l = 0; l < kLayers; ++l) {
    const std::string at = (original ? "block." : "model.layers.") + std::to_string(l) + ".";
    if (original) {
      add(at + "attn.norm.scale", "BF16", {H});
      add(at + "attn.qkv.weight", "BF16", {kQ + 2 * kKv, H});
      add(at + "attn.qkv.bias", "BF16", {kQ + 2 * kKv});
      add(at + "attn.sinks", "BF16", {kHeads});
      add(at + "attn.out.weight", "BF16", {H, kQ});
      add(at + "attn.out.bias", "BF16", {H});
      add(at + "mlp.norm.scale", "BF16", {H});
      add(at + "mlp.gate.weight", "BF16", {E, H});
      add(at + "mlp.gate.bias", "BF16", {E});
      add(at + "mlp.mlp1_weight.blocks", "U8", {E, 2 * I, H / 32, 16});
      add(at + "mlp.mlp1_weight.scales", "U8", {E, 2 * I, H / 32});
      add(at + "mlp.mlp1_bias", "BF16", {E, 2 * I});
      add(at + "mlp.mlp2_weight.blocks", "U8", {E, H, I / 32, 16});
      add(at + "mlp.mlp2_weight.scales", "U8", {E, H, I / 32});
      add(at + "mlp.mlp2_bias", "BF16", {E, H});
      continue;
    }
    add(at + "input_layernorm.weight", "BF16", {H});
    for (const std::string part : {"q", "k", "v"}) {
      add(at + "self_attn." + part + "_proj.weight", "BF16", {part == "q" ? kQ : kKv, H});
      add(at + "self_attn." + part + "_proj.bias", "BF16", {part == "q" ? kQ : kKv});
    }
    add(at + "self_attn.sinks", "BF16", {kHeads});
    add(at + "self_attn.o_proj.weight", "BF16", {H, kQ});
    add(at + "self_attn.o_proj.bias", "BF16", {H});
    add(at + "post_attention_layernorm.weight", "BF16", {H});
    add(at + "mlp.router.weight", "BF16", {E, H});
    add(at + "mlp.router.bias", "BF16", {E});
    if (layout == Layout::hf_bf16) {
      add(at + "mlp.experts.gate_up_proj", "BF16", {E, H, 2 * I});
      add(at + "mlp.experts.down_proj", "BF16", {E, I, H});
    } else {
      add(at + "mlp.experts.gate_up_proj_blocks", "U8", {E, 2 * I, H / 32, 16});
      add(at + "mlp.experts.gate_up_proj_scales", "U8", {E, 2 * I, H / 32});
      add(at + "mlp.experts.down_proj_blocks", "U8", {E, H, I / 32, 16});
      add(at + "mlp.experts.down_proj_scales", "U8", {E, H, I / 32});
    }
    add(at + "mlp.experts.gate_up_proj_bias", "BF16", {E, 2 * I});
    add(at + "mlp.experts.down_proj_bias", "BF16", {E, H});
  }
  return all;
}

class WeightsOf : public testing::TestWithParam<Layout> {
 protected:
  Result<Weights> find(const RawTensors& checkpoint) { return find(checkpoint, config(GetParam())); }

  Result<Weights> find(const RawTensors& checkpoint, const Config& config) {
    std::vector<RawTensor> tensors;
    for (const bool bytes_last : {false, true})  // so that the rest is aligned
      for (const auto& [name, tensor] : checkpoint)
        if ((tensor.dtype == "U8" || tensor.dtype == "I8") == bytes_last) tensors.push_back(tensor);
    const auto path = folder_.path() / "model.safetensors";
    std::filesystem::remove(path);  // the mapping stays valid
    write_file(path, safetensors_file(tensors));
    auto opened = Safetensors::open(path);
    if (!opened) return opened.error();
    files_.push_back(*std::move(opened));
    return find_weights(config, files_.back());
  }

  std::string refusal(const RawTensors& checkpoint) {
    const auto weights = find(checkpoint);
    return weights ? "(accepted)" : weights.error().message;
  }

  static Config config(Layout layout) {
    Json json = tiny_config();
    if (layout == Layout::hf_bf16) json.erase("quantization_config");
    return *parse_config(json.dump(), "config.json");
  }

  // The bytes of a contiguous view.
  static std::string bytes(const auto& view) {
    EXPECT_TRUE(view.contiguous());
    return {reinterpret_cast<const char*>(view.data()), static_cast<size_t>(view.bytes())};
  }
  static std::string bytes(const DenseMatrix& matrix) { return bytes(std::get<View<const bf16, 2>>(matrix)); }
  static std::string norm_bytes(const NormWeights& norm) {
    return std::visit([](const auto& view) { return bytes(view); }, norm);
  }

  TempFolder folder_;
  std::vector<Safetensors> files_;
};

INSTANTIATE_TEST_SUITE_P(Layouts, WeightsOf,
                         testing::Values(Layout::hf_mxfp4, Layout::hf_bf16, Layout::original),
                         [](const auto& info) { return name(info.param); });

TEST_P(WeightsOf, AreReadBackExactly) {
  const RawTensors checkpoint = tiny_checkpoint(GetParam());
  const auto weights          = find(checkpoint);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->layout, GetParam());
  ASSERT_EQ(weights->layers.size(), 4u);

  const bool original = GetParam() == Layout::original;
  const auto raw      = [&](const std::string& hf, const std::string& own) {
    return checkpoint.at(original ? own : hf).bytes;
  };
  EXPECT_EQ(bytes(weights->embedding), raw("model.embed_tokens.weight", "embedding.weight"));
  EXPECT_EQ(bytes(weights->unembedding), raw("lm_head.weight", "unembedding.weight"));
  EXPECT_EQ(norm_bytes(weights->norm), raw("model.norm.weight", "norm.scale"));
  for (int64_t l = 0; l < kLayers; ++l) {
    const LayerWeights& w = weights->layers[static_cast<size_t>(l)];
    const auto in_layer   = [&](const std::string& hf, const std::string& own) {
      const std::string number = std::to_string(l);
      return raw("model.layers." + number + "." + hf, "block." + number + "." + own);
    };
    EXPECT_EQ(norm_bytes(w.attn_norm), in_layer("input_layernorm.weight", "attn.norm.scale"));
    EXPECT_EQ(norm_bytes(w.mlp_norm), in_layer("post_attention_layernorm.weight", "mlp.norm.scale"));
    EXPECT_EQ(bytes(w.sinks), in_layer("self_attn.sinks", "attn.sinks"));
    EXPECT_EQ(bytes(w.out), in_layer("self_attn.o_proj.weight", "attn.out.weight"));
    EXPECT_EQ(bytes(w.out_bias), in_layer("self_attn.o_proj.bias", "attn.out.bias"));
    EXPECT_EQ(bytes(w.router), in_layer("mlp.router.weight", "mlp.gate.weight"));
    EXPECT_EQ(bytes(w.router_bias), in_layer("mlp.router.bias", "mlp.gate.bias"));
    EXPECT_EQ(bytes(w.mlp1_bias), in_layer("mlp.experts.gate_up_proj_bias", "mlp.mlp1_bias"));
    EXPECT_EQ(bytes(w.mlp2_bias), in_layer("mlp.experts.down_proj_bias", "mlp.mlp2_bias"));

    const std::string at = "model.layers." + std::to_string(l) + ".";
    const auto fused     = [&](const std::string& kind) {  // q, k and v concatenated
      if (original) return checkpoint.at("block." + std::to_string(l) + ".attn.qkv." + kind).bytes;
      std::string all;
      for (const char* part : {"q", "k", "v"})
        all += checkpoint.at(at + "self_attn." + part + "_proj." + kind).bytes;
      return all;
    };
    EXPECT_EQ(kernels::rows_of(w.q), kQ);
    EXPECT_EQ(kernels::rows_of(w.k), kKv);
    EXPECT_EQ(bytes(w.q) + bytes(w.k) + bytes(w.v), fused("weight"));
    EXPECT_EQ(bytes(w.q_bias) + bytes(w.k_bias) + bytes(w.v_bias), fused("bias"));

    if (GetParam() == Layout::hf_bf16) {
      const auto mlp1          = std::get<1>(w.mlp1);
      const std::string stored = checkpoint.at(at + "mlp.experts.gate_up_proj").bytes;
      for (const auto& [e, o, i] : {std::array<int64_t, 3>{0, 1, 0}, {3, 5, 17}, {E - 1, 2 * I - 1, H - 1}})
        EXPECT_EQ(std::memcmp(&mlp1(e, o, i), &stored[static_cast<size_t>(2 * ((e * H + i) * 2 * I + o))], 2),
                  0);
      EXPECT_EQ(mlp1.extent(1), 2 * I);
      EXPECT_EQ(std::get<1>(w.mlp2).extent(1), H);
      EXPECT_EQ(std::get<1>(w.mlp2).extent(2), I);
    } else {
      const auto& mlp1 = std::get<0>(w.mlp1);
      const auto& mlp2 = std::get<0>(w.mlp2);
      EXPECT_EQ(bytes(mlp1.blocks), in_layer("mlp.experts.gate_up_proj_blocks", "mlp.mlp1_weight.blocks"));
      EXPECT_EQ(bytes(mlp1.scales), in_layer("mlp.experts.gate_up_proj_scales", "mlp.mlp1_weight.scales"));
      EXPECT_EQ(bytes(mlp2.blocks), in_layer("mlp.experts.down_proj_blocks", "mlp.mlp2_weight.blocks"));
      EXPECT_EQ(bytes(mlp2.scales), in_layer("mlp.experts.down_proj_scales", "mlp.mlp2_weight.scales"));
    }
  }
}

// Every tensor is required, and every extent of its shape is checked.
TEST_P(WeightsOf, NamesEachTensorThatIsMissingOrMisshapen) {
  const RawTensors good = tiny_checkpoint(GetParam());
  for (const auto& [name, tensor] : good) {
    // One layer is enough.
    if (std::ranges::any_of(std::array{".0.", ".2.", ".3."},
                            [&](const char* layer) { return name.find(layer) != std::string::npos; }))
      continue;
    RawTensors bad = good;
    bad.erase(name);
    EXPECT_NE(refusal(bad).find("'" + name + "' is missing"), std::string::npos) << name << refusal(bad);
    bad = good;
    bad[name].shape.insert(bad[name].shape.begin(), 1);
    EXPECT_NE(refusal(bad).find("'" + name + "' is "), std::string::npos) << name << refusal(bad);
    bad             = good;
    bad[name].dtype = "I8";
    if (tensor.dtype != "U8") bad[name].shape.back() *= 2;
    EXPECT_NE(refusal(bad).find("'" + name + "' is "), std::string::npos) << name << refusal(bad);
  }
}

TEST_P(WeightsOf, SaysHowManyMoreAreWrong) {
  const std::string message = refusal({});
  EXPECT_NE(message.find(" more"), std::string::npos) << message;
  EXPECT_LT(message.size(), 1000u);
}

TEST_P(WeightsOf, NormsMayBeFp32) {
  RawTensors checkpoint  = tiny_checkpoint(GetParam());
  const std::string norm = GetParam() == Layout::original ? "norm.scale" : "model.norm.weight";
  checkpoint[norm].dtype = "F32";
  checkpoint[norm].bytes += pattern("more", 2 * H);
  const auto weights = find(checkpoint);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(norm_bytes(std::get<1>(weights->norm)), checkpoint[norm].bytes);
}

// As transformers saves a fine-tune: every BF16 tensor in another type. Returns the new one's bytes.
template <class To>
std::string widened(const std::string& bf16_bytes) {
  std::string bytes(bf16_bytes.size() / 2 * sizeof(To), '\0');
  for (size_t i = 0; i < bf16_bytes.size() / 2; ++i) {
    bf16 from;
    std::memcpy(&from, &bf16_bytes[2 * i], 2);
    const To to{static_cast<float>(from)};
    std::memcpy(&bytes[sizeof(To) * i], &to, sizeof(To));
  }
  return bytes;
}

TEST_P(WeightsOf, Fp32IsRoundedToBf16AndNormsAreNot) {
  const RawTensors bf16_checkpoint = tiny_checkpoint(GetParam());
  RawTensors checkpoint            = bf16_checkpoint;
  int64_t tensors                  = 0;
  for (auto& [name, tensor] : checkpoint) {
    if (tensor.dtype != "BF16") continue;
    const bool norm = name.find("norm") != std::string::npos;
    tensors += !norm;
    tensor.dtype = "F32";
    tensor.bytes = widened<float>(tensor.bytes);
    // Less than half a BF16 step away, so that rounding finds the way back.
    for (size_t i = 0; !norm && i < tensor.bytes.size(); i += 4) tensor.bytes[i + 1] = '\x7f';
  }
  const auto weights = find(checkpoint), expected = find(bf16_checkpoint);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->rounded_tensors, tensors);
  EXPECT_EQ(expected->rounded_tensors, 0);
  EXPECT_EQ(bytes(weights->embedding), bytes(expected->embedding));
  EXPECT_EQ(bytes(weights->unembedding), bytes(expected->unembedding));
  EXPECT_EQ(norm_bytes(weights->norm), widened<float>(norm_bytes(expected->norm)));
  for (size_t l = 0; l < weights->layers.size(); ++l) {
    const LayerWeights &a = weights->layers[l], &b = expected->layers[l];
    EXPECT_EQ(norm_bytes(a.attn_norm), widened<float>(norm_bytes(b.attn_norm)));
    for (const auto part : {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v, &LayerWeights::out})
      EXPECT_EQ(bytes(a.*part), bytes(b.*part)) << l;
    for (const auto part : {&LayerWeights::router, &LayerWeights::mlp1_bias, &LayerWeights::mlp2_bias})
      EXPECT_EQ(bytes(a.*part), bytes(b.*part)) << l;
    for (const auto part : {&LayerWeights::q_bias, &LayerWeights::k_bias, &LayerWeights::v_bias,
                            &LayerWeights::sinks, &LayerWeights::out_bias, &LayerWeights::router_bias})
      EXPECT_EQ(bytes(a.*part), bytes(b.*part)) << l;
    if (GetParam() != Layout::hf_bf16) continue;
    const auto &mine = std::get<1>(a.mlp1), &theirs = std::get<1>(b.mlp1);
    for (int64_t e = 0; e < E; ++e)
      for (int64_t o = 0; o < 2 * I; ++o)
        for (int64_t i = 0; i < H; ++i) ASSERT_EQ(mine(e, o, i).bits, theirs(e, o, i).bits);
  }
  EXPECT_EQ(find_layout(config(GetParam()), files_.front()).value(), GetParam());
}

bool is_int8(const std::string& name) {
  return name.ends_with("embedding.weight") || name == "model.embed_tokens.weight" ||
         name == "lm_head.weight" || name.ends_with("_proj.weight") || name.ends_with("qkv.weight") ||
         name.ends_with("out.weight");
}

TEST_P(WeightsOf, AttentionAndEmbeddingMayBeInt8) {
  const RawTensors plain = tiny_checkpoint(GetParam());
  RawTensors checkpoint  = plain;
  for (const auto& [name, tensor] : plain) {
    if (!is_int8(name)) continue;
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1], groups = int8_groups(columns);
    checkpoint[name]            = {name, "I8", tensor.shape, pattern(name, rows * columns)};
    checkpoint[name + "_scale"] = {
        name + "_scale", "BF16", {rows, groups}, pattern(name + "_scale", 2 * rows * groups)};
  }
  EXPECT_NE(refusal(checkpoint).find("is int8"), std::string::npos) << refusal(checkpoint);

  Config int8        = config(GetParam());
  int8.int8_dense    = true;
  const auto weights = find(checkpoint, int8);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->layout, GetParam());
  const bool original = GetParam() == Layout::original;
  const auto expect   = [&](std::vector<DenseMatrix> parts, const std::string& name) {
    std::string values, scales;
    for (const DenseMatrix& part : parts) {
      values += bytes(std::get<kernels::Int8Weights>(part).values);
      scales += bytes(std::get<kernels::Int8Weights>(part).scales);
    }
    EXPECT_EQ(values, checkpoint.at(name).bytes) << name;
    EXPECT_EQ(scales, checkpoint.at(name + "_scale").bytes) << name;
  };
  expect({weights->embedding}, original ? "embedding.weight" : "model.embed_tokens.weight");
  expect({weights->unembedding}, original ? "unembedding.weight" : "lm_head.weight");
  for (int64_t l = 0; l < kLayers; ++l) {
    const LayerWeights& w = weights->layers[static_cast<size_t>(l)];
    const std::string at  = (original ? "block." : "model.layers.") + std::to_string(l) + ".";
    expect({w.out}, at + (original ? "attn.out.weight" : "self_attn.o_proj.weight"));
    if (original) {
      expect({w.q, w.k, w.v}, at + "attn.qkv.weight");
      EXPECT_EQ(kernels::rows_of(w.v), kKv);
    } else {
      expect({w.q}, at + "self_attn.q_proj.weight");
      expect({w.k}, at + "self_attn.k_proj.weight");
      expect({w.v}, at + "self_attn.v_proj.weight");
    }
  }
  // A missing scale is named, and a checkpoint in BF16 is not taken for one in int8.
  const std::string scale = original ? "unembedding.weight_scale" : "lm_head.weight_scale";
  checkpoint.erase(scale);
  EXPECT_NE(find(checkpoint, int8).error().message.find("'" + scale + "' is missing"), std::string::npos);
  EXPECT_NE(find(plain, int8).error().message.find("not int8"), std::string::npos);
}

// Infinities, NaNs, subnormals, ties and what BF16 has no room for.
TEST_P(WeightsOf, RoundsTheEdgesOfFp32AndFp16ToNearestEven) {
  RawTensors checkpoint   = tiny_checkpoint(GetParam());
  const bool original     = GetParam() == Layout::original;
  const std::string sinks = original ? "block.0.attn.sinks" : "model.layers.0.self_attn.sinks";
  const std::string norm  = original ? "norm.scale" : "model.norm.weight";
  const auto put          = [&](const std::string& name, const char* dtype, const auto& values) {
    checkpoint[name].dtype = dtype;
    checkpoint[name].bytes.assign(reinterpret_cast<const char*>(values.data()), sizeof(values));
  };
  const auto sinks_are = [&](const std::array<uint16_t, kHeads>& expected) {
    const auto weights = find(checkpoint);
    ASSERT_TRUE(weights) << weights.error().message;
    for (int64_t h = 0; h < kHeads; ++h)
      EXPECT_EQ(weights->layers[0].sinks(h).bits, expected[static_cast<size_t>(h)]) << h;
  };
  // infinity, -infinity, NaN, the largest number (beyond BF16's), the smallest subnormal, one that BF16 has,
  // ties to the even neighbour below and above
  put(sinks, "F32",
      std::array<uint32_t, kHeads>{0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff, 0x00000001, 0x80010000,
                                   0x3f808000, 0x3f818000});
  sinks_are({0x7f80, 0xff80, 0x7fc0, 0x7f80, 0x0000, 0x8001, 0x3f80, 0x3f82});
  // infinity, -infinity, NaN, 65504 (65536 in BF16), the smallest subnormal (normal in BF16), 1, a tie, -0
  put(sinks, "F16",
      std::array<uint16_t, kHeads>{0x7c00, 0xfc00, 0x7e00, 0x7bff, 0x0001, 0x3c00, 0x3c04, 0x8000});
  sinks_are({0x7f80, 0xff80, 0x7fc0, 0x4780, 0x3380, 0x3f80, 0x3f80, 0x8000});

  std::array<uint16_t, H> halves{};
  halves.fill(0x3c01);  // 1 + 2^-10, which BF16 lacks
  put(norm, "F16", halves);
  const auto weights = find(checkpoint);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(std::get<1>(weights->norm)(5), 1 + 0x1p-10f);
}

TEST_P(WeightsOf, NanScalesAreRefused) {
  if (GetParam() == Layout::hf_bf16) GTEST_SKIP() << "experts in BF16 have no scales";
  RawTensors checkpoint = tiny_checkpoint(GetParam());
  const bool original   = GetParam() == Layout::original;
  const std::string name =
      original ? "block.3.mlp.mlp2_weight.scales" : "model.layers.3.mlp.experts.down_proj_scales";
  checkpoint[name].bytes.back() = '\xff';
  EXPECT_NE(refusal(checkpoint).find("'" + name + "' has a scale that is NaN (255) at [7, 63, 2]"),
            std::string::npos)
      << refusal(checkpoint);
}

TEST_P(WeightsOf, AnotherModelsConfigIsRefused) {
  const RawTensors checkpoint = tiny_checkpoint(GetParam());
  Config fewer                = config(GetParam());
  --fewer.num_hidden_layers;
  fewer.layers.pop_back();
  EXPECT_NE(find(checkpoint, fewer).error().message.find("beyond the 3"), std::string::npos);
  const bool bf16  = GetParam() == Layout::hf_bf16;
  const auto wrong = find(checkpoint, config(bf16 ? Layout::hf_mxfp4 : Layout::hf_bf16));
  EXPECT_NE(wrong.error().message.find("quantization_config"), std::string::npos);
}

}  // namespace
}  // namespace fathom::model
