#include "model/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "model/tiny_checkpoint.h"

namespace fathom::model {
namespace {

using Json = nlohmann::json;

Json original_20b() {
  return {{"num_hidden_layers", 24},    {"num_experts", 32},     {"experts_per_token", 4},
          {"vocab_size", 201088},       {"hidden_size", 2880},   {"intermediate_size", 2880},
          {"swiglu_limit", 7.0},        {"head_dim", 64},        {"num_attention_heads", 64},
          {"num_key_value_heads", 8},   {"sliding_window", 128}, {"initial_context_length", 4096},
          {"rope_theta", 150000},       {"rope_ntk_alpha", 1.0}, {"rope_ntk_beta", 32.0},
          {"rope_scaling_factor", 32.0}};
}

// The same model in Hugging Face's spelling. transformers 5 moves theta into the RoPE object.
Json hugging_face(Json c, bool v5) {
  Json rope{{"rope_type", "yarn"},
            {"factor", c["rope_scaling_factor"]},
            {"beta_fast", c["rope_ntk_beta"]},
            {"beta_slow", c["rope_ntk_alpha"]},
            {"truncate", false},
            {"original_max_position_embeddings", c["initial_context_length"]}};
  c["num_local_experts"]   = c["num_experts"];
  c["num_experts_per_tok"] = c["experts_per_token"];
  if (v5) rope["rope_theta"] = c["rope_theta"];
  for (const char* key : {"num_experts", "experts_per_token", "rope_scaling_factor", "rope_ntk_beta",
                          "rope_ntk_alpha", "initial_context_length"})
    c.erase(key);
  if (v5) c.erase("rope_theta");
  c[v5 ? "rope_parameters" : "rope_scaling"] = rope;
  c["quantization_config"]                   = {{"quant_method", "mxfp4"}};
  c["model_type"]                            = "gpt_oss";
  return c;
}

Config parsed(const Json& json) {
  auto config = parse_config(json.dump(), "config.json");
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : Config{};
}

std::string refusal(const Json& json) {
  auto config = parse_config(json.dump(), "config.json");
  return config ? "(accepted)" : config.error().message;
}

TEST(Config, ReadsAllSpellingsAlike) {
  for (const Json& json :
       {original_20b(), hugging_face(original_20b(), false), hugging_face(original_20b(), true)}) {
    const Config c = parsed(json);
    EXPECT_EQ(c.num_hidden_layers, 24);
    EXPECT_EQ(c.num_local_experts, 32);
    EXPECT_EQ(c.num_experts_per_tok, 4);
    EXPECT_EQ(c.vocab_size, 201088);
    EXPECT_EQ(c.num_attention_heads, 64);
    EXPECT_EQ(c.num_key_value_heads, 8);
    EXPECT_EQ(c.sliding_window, 128);
    EXPECT_EQ(c.max_position_embeddings, 131072);
    EXPECT_EQ(c.rms_norm_eps, 1e-5);
    EXPECT_EQ(c.swiglu_limit, 7);
    EXPECT_EQ(c.swiglu_alpha, 1.702);
    EXPECT_EQ(c.rope.theta, 150000);
    EXPECT_EQ(c.rope.factor, 32);
    EXPECT_EQ(c.rope.beta_fast, 32);
    EXPECT_EQ(c.rope.beta_slow, 1);
    EXPECT_EQ(c.rope.original_context, 4096);
    EXPECT_FALSE(c.rope.truncate);
    EXPECT_TRUE(c.mxfp4_experts);
    ASSERT_EQ(c.layers.size(), 24u);
    EXPECT_EQ(c.layers[0], Attention::sliding);
    EXPECT_EQ(c.layers[1], Attention::full);
  }
}

// The parameter counts of OpenAI's gpt-oss model card.
TEST(Config, FootprintOf20bAnd120b) {
  const Footprint small = footprint(parsed(original_20b()));
  EXPECT_EQ(small.parameters, 20'914'757'184);
  EXPECT_EQ(small.active_parameters, 3'608'307'264);
  EXPECT_EQ(small.checkpoint_bytes, 13'761'264'768);
  EXPECT_EQ(small.expert_bytes, 13'236'480);
  EXPECT_EQ(small.dense_layer_bytes, 53'296'192);
  EXPECT_EQ(small.bytes_read_by_token,
            24 * (int64_t{53'296'192} + 4 * 13'236'480) + int64_t{201088 + 1} * 2880 * 2);
  EXPECT_EQ(small.kv_bytes_per_token, 24'576);
  EXPECT_EQ(small.kv_window_bytes, 3 << 20);

  Json json                 = original_20b();
  json["num_hidden_layers"] = 36;
  json["num_experts"]       = 128;
  const Footprint large     = footprint(parsed(json));
  EXPECT_EQ(large.parameters, 116'829'156'672);
  EXPECT_EQ(large.active_parameters, 5'132'849'472);
  EXPECT_EQ(large.checkpoint_bytes, 65'248'815'744);
  EXPECT_EQ(large.dense_layer_bytes, 53'849'344);
  EXPECT_EQ(large.kv_bytes_per_token, 36'864);
  EXPECT_EQ(large.kv_window_bytes, 9 << 19);

  // In int8 a row of K weights takes K + 2 ceil(K / 32) bytes.
  json                                 = hugging_face(original_20b(), false);
  json["quantization_config"]["dense"] = {{"dtype", "int8"}, {"group_size", 32}};
  EXPECT_TRUE(parsed(json).int8_dense);
  const Footprint int8     = footprint(parsed(json));
  const int64_t saved_2880 = 2 * 2880 - (2880 + 180), saved_4096 = 2 * 4096 - (4096 + 256);
  EXPECT_EQ(small.dense_layer_bytes - int8.dense_layer_bytes, 5120 * saved_2880 + 2880 * saved_4096);
  EXPECT_EQ(small.checkpoint_bytes - int8.checkpoint_bytes,
            24 * (5120 * saved_2880 + 2880 * saved_4096) + 2 * 201088 * saved_2880);
  EXPECT_EQ(small.bytes_read_by_token - int8.bytes_read_by_token,
            24 * (5120 * saved_2880 + 2880 * saved_4096) + 201088 * saved_2880);
  EXPECT_EQ(int8.parameters, small.parameters);

  json = hugging_face(original_20b(), false);
  json.erase("quantization_config");
  EXPECT_EQ(footprint(parsed(json)).checkpoint_bytes, 2 * small.parameters);
}

TEST(Config, ReadsTheTinyTestModel) {
  const Config c = parsed(tiny_config());
  EXPECT_EQ(c.layers.size(), 4u);
  EXPECT_EQ(c.num_local_experts, 8);
  EXPECT_EQ(c.eos_token_ids, std::vector<int64_t>{2});
  EXPECT_EQ(c.max_position_embeddings, 131072);
}

TEST(Config, RefusesWithKeyAndFile) {
  struct Case {
    const char* patch;  // merged into the tiny model's config; null removes
    const char* named;  // must occur in the message
  };
  const Case cases[] = {
      {R"({"hidden_size": null})", "'hidden_size' is missing"},
      {R"({"hidden_size": 0})", "'hidden_size' must be an integer"},
      {R"({"hidden_size": -64})", "'hidden_size' must be an integer"},
      {R"({"hidden_size": 64.0})", "'hidden_size' must be an integer"},
      {R"({"hidden_size": "64"})", "'hidden_size' must be an integer"},
      {R"({"hidden_size": 18446744073709551615})", "'hidden_size' must be an integer"},
      {R"({"hidden_size": 1e300})", "'hidden_size' must be an integer"},
      {R"({"hidden_size": 65})", "multiple of 32"},
      {R"({"num_experts": 9})", "'num_local_experts' is 8 but 'num_experts' is 9"},
      {R"({"experts_per_token": 2})", "'num_experts_per_tok' is 4 but 'experts_per_token' is 2"},
      {R"({"num_local_experts": null})", "'num_local_experts' or 'num_experts' is missing"},
      {R"({"num_local_experts": 3})", "'num_experts_per_tok' is 4, more than the 3"},
      {R"({"num_key_value_heads": 3})", "no multiple of 'num_key_value_heads'"},
      {R"({"head_dim": 15})", "'head_dim' is 15"},
      {R"({"rms_norm_eps": 0})", "'rms_norm_eps' must be a number"},
      {R"({"rope_theta": null})", "rope_theta' is missing"},
      {R"({"rope_scaling": null})", "'rope_scaling'"},
      {R"({"rope_scaling": 7})", "'rope_scaling' must be an object"},
      {R"({"rope_scaling": {"factor": 0.5}})", "'rope_scaling.factor'"},
      {R"({"rope_scaling": {"factor": null}})", "'rope_scaling.factor' or 'rope_scaling_factor' is missing"},
      {R"({"rope_scaling": {"beta_fast": 1}})", "beta_fast is 1"},
      {R"({"rope_scaling": {"truncate": 0}})", "'rope_scaling.truncate' must be true or false"},
      {R"({"rope_scaling": {"rope_type": "llama3"}})", "'llama3'"},
      {R"({"rope_scaling": {"attention_factor": 2}})", "attention_factor"},
      {R"({"rope_parameters": {"factor": 32}})", "both 'rope_parameters' and 'rope_scaling'"},
      {R"({"initial_context_length": 2048})", "'initial_context_length' is 2048"},
      {R"({"layer_types": ["full_attention"]})", "'layer_types' must list 4 layers"},
      {R"({"layer_types": ["full_attention", "linear", "x", 1]})", "'layer_types[1]'"},
      {R"({"quantization_config": {"quant_method": "awq"}})", "'awq'"},
      {R"({"quantization_config": {"quant_method": null}})", "'quantization_config.quant_method' is missing"},
      {R"({"quantization_config": {"dense": {"dtype": "int4"}}})",
       "'quantization_config.dense.dtype' is 'int4'"},
      {R"({"quantization_config": {"dense": {"group_size": 32}}})",
       "'quantization_config.dense.dtype' is missing"},
      {R"({"quantization_config": {"dense": {"dtype": "int8", "group_size": 64}}})",
       "'quantization_config.dense.group_size'"},
      {R"({"quantization_config": {"dense": true}})", "'quantization_config.dense' must be an object"},
      {R"({"attention_bias": false})", "'attention_bias' is false"},
      {R"({"tie_word_embeddings": true})", "'tie_word_embeddings' is true"},
      {R"({"model_type": "llama"})", "'llama'"},
      {R"({"eos_token_id": 384})", "'eos_token_id'"},
      {R"({"eos_token_id": [1, -1]})", "'eos_token_id'"},
  };
  for (const Case& c : cases) {
    Json json = tiny_config();
    json.merge_patch(Json::parse(c.patch));
    const std::string message = refusal(json);
    EXPECT_NE(message.find(c.named), std::string::npos) << c.patch << "\n" << message;
    EXPECT_EQ(message.rfind("config.json: ", 0), 0u) << message;
  }
}

TEST(Config, TruncatesByDefaultLikeTransformers) {
  Json json = tiny_config();
  json["rope_scaling"].erase("truncate");
  EXPECT_TRUE(parsed(json).rope.truncate);
  json["rope_scaling"] = {{"rope_type", "default"}};
  EXPECT_EQ(parsed(json).rope.factor, 1);
}

TEST(Config, RefusesOtherFiles) {
  EXPECT_FALSE(parse_config("", "f"));
  EXPECT_FALSE(parse_config("[]", "f"));
  EXPECT_FALSE(parse_config("{\"a\": 1e999}", "f"));
  EXPECT_FALSE(parse_config(std::string(100'000, '['), "f"));
  EXPECT_NE(parse_config(R"({"a": 1, "a": 2})", "f").error().message.find("'a' twice"), std::string::npos);
}

TEST(Config, ReadsAFile) {
  const TempFolder folder;
  EXPECT_FALSE(read_config(folder.path() / "config.json"));
  EXPECT_FALSE(read_config(folder.path()));
  std::ofstream(folder.path() / "config.json") << tiny_config();
  const auto config = read_config(folder.path() / "config.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 16);
  std::ofstream(folder.path() / "config.json") << std::string((1 << 20) + 1, ' ');
  EXPECT_NE(read_config(folder.path() / "config.json").error().message.find("1 MiB"), std::string::npos);
}

TEST(Config, SurvivesMutations) {
  std::mt19937_64 random(1);
  const std::string text = tiny_config().dump();
  for (int trial = 0; trial < 3000; ++trial) {
    std::string mutated = text;
    for (uint64_t edits = 1 + random() % 4; edits > 0; --edits)
      mutated[random() % mutated.size()] = "\"{}[],:0123456789-e.xtn\\\xff"[random() % 24];
    const auto config = parse_config(mutated, "f");
    if (config) {
      EXPECT_GT(footprint(*config).parameters, 0) << mutated;
    }
  }
}

TEST(Config, SaysWhatDiffers) {
  const Config served   = parsed(tiny_config());
  Json other            = tiny_config();
  other["eos_token_id"] = 7;
  EXPECT_FALSE(first_difference(parsed(other), served));
  other["hidden_size"] = 128;
  EXPECT_EQ(first_difference(parsed(other), served), "'hidden_size' is 128, not 64");
  other                   = tiny_config();
  other["layer_types"][1] = "sliding_attention";
  EXPECT_EQ(first_difference(parsed(other), served),
            "'layer_types[1]' is sliding_attention, not full_attention");
  other = tiny_config();
  other.erase("quantization_config");
  EXPECT_EQ(first_difference(parsed(other), served), "its experts are BF16, not MXFP4");
  EXPECT_EQ(first_difference(served, parsed(other)), "its experts are MXFP4, not BF16");
}

}  // namespace
}  // namespace fathom::model
