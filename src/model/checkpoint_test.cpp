#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "model/byte_level_tokenizer.h"
#include "model/prompt_logits.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::model {
namespace {

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    ThreadPool pool(1);
    EXPECT_TRUE(make_synthetic_checkpoint({.shape = ModelShape::tiny, .seed = 1}, folder_.path(), pool));
  }
  void put(const char* file, const std::string& text) { write_file(folder_.path() / file, text); }
  std::string error() {
    const auto opened = Checkpoint::open(folder_.path());
    return opened ? "no error" : opened.error().message;
  }

  TempFolder folder_;
};

TEST_F(CheckpointTest, WeightsAlone) {
  const auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_FALSE(opened->tokenizer);
  EXPECT_FALSE(opened->harmony);
  EXPECT_EQ(opened->system_prompt, "");
  EXPECT_EQ(opened->eos_ids, std::vector<TokenId>{2});
  EXPECT_EQ(kernels::rows_of(opened->weights.embedding), 384);
}

// Rewrites the file with its floating tensors in the type To.
template <class To>
void save_as(const std::filesystem::path& file, const char* dtype) {
  const auto original = Safetensors::open(file).value();
  std::vector<RawTensor> floats, rest;
  for (const auto& [name, tensor] : original.tensors()) {
    const auto converted = [&]<class From>(const From* from) {
      std::string bytes;
      for (size_t i = 0; i < tensor.bytes.size() / sizeof(From); ++i) {
        const To to(static_cast<float>(from[i]));
        bytes.append(reinterpret_cast<const char*>(&to), sizeof to);
      }
      floats.push_back({name, dtype, tensor.shape, bytes});
    };
    const void* data = tensor.bytes.data();
    if (tensor.dtype == DType::bf16) converted(static_cast<const bf16*>(data));
    if (tensor.dtype == DType::fp16) converted(static_cast<const fp16*>(data));
    if (tensor.dtype == DType::fp32) converted(static_cast<const float*>(data));
    if (tensor.dtype == DType::uint8)
      rest.push_back({name, "U8", tensor.shape, {static_cast<const char*>(data), tensor.bytes.size()}});
  }
  floats.insert(floats.end(), rest.begin(), rest.end());  // bytes last: the others stay aligned
  std::filesystem::remove(file);                          // the mapping stays valid
  write_file(file, safetensors_file(floats));
}

// A fine-tune saved in another type computes what the same numbers in BF16 compute, bit for bit.
TEST_F(CheckpointTest, LogitsDoNotDependOnTheTypeThatHoldsTheWeights) {
  ThreadPool pool(1);
  const auto logits = [&] {
    const auto opened = Checkpoint::open(folder_.path());
    EXPECT_TRUE(opened) << opened.error().message;
    const std::vector<TokenId> prompt = {3, 200, 17, 17, 91};
    std::vector<std::vector<float>> all;
    prompt_logits(*opened, prompt, pool,
                  [&](std::span<const float> row) { all.emplace_back(row.begin(), row.end()); });
    return all;
  };
  const auto file    = folder_.path() / "model.safetensors";
  const auto in_bf16 = logits();
  save_as<float>(file, "F32");
  EXPECT_EQ(logits(), in_bf16);
  save_as<fp16>(file, "F16");  // loses the smallest numbers
  const auto in_fp16 = logits();
  save_as<float>(file, "F32");
  EXPECT_EQ(logits(), in_fp16);
  EXPECT_EQ(in_fp16.size(), 5u);
}

TEST_F(CheckpointTest, ReadsTheFilesBesideTheWeights) {
  put("tokenizer.json",
      byte_level_tokenizer_json({}, {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>",
                                     "<|return|>", "<|call|>", "<|endoftext|>"})
          .dump());
  put("generation_config.json",
      R"({"eos_token_id": [261, 262], "temperature": 1, "system_prompt": "Be brief."})");
  const auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_TRUE(opened->tokenizer);
  ASSERT_TRUE(opened->harmony);
  EXPECT_EQ(opened->harmony->return_, 261);
  EXPECT_EQ(opened->system_prompt, "Be brief.");
  EXPECT_EQ(opened->eos_ids, (std::vector<TokenId>{261, 262}));
}

TEST_F(CheckpointTest, ATokenizerWithoutHarmony) {
  put("tokenizer.json", byte_level_tokenizer_json({}).dump());
  const auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_TRUE(opened->tokenizer);
  EXPECT_FALSE(opened->harmony);
}

TEST_F(CheckpointTest, OneEosId) {
  put("generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(Checkpoint::open(folder_.path()).value().eos_ids, std::vector<TokenId>{7});
}

TEST_F(CheckpointTest, ReadsSamplingDefaults) {
  const auto sampling = [&](const char* generation) {
    put("generation_config.json", generation);
    return Checkpoint::open(folder_.path()).value().sampling;
  };
  EXPECT_EQ(sampling("{}").temperature, 1);
  const SamplingDefaults given =
      sampling(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20})");
  EXPECT_EQ(given.temperature, 0.6);
  EXPECT_EQ(given.top_p, 0.9);
  EXPECT_EQ(given.top_k, 20);
  EXPECT_EQ(sampling(R"({"do_sample": false, "temperature": 0.6})").temperature, 0);
}

TEST_F(CheckpointTest, BadFilesAreNamed) {
  const auto expect = [&](const char* file, const std::string& text, const char* part) {
    put(file, text);
    const std::string message = error();
    EXPECT_NE(message.find(file), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    std::filesystem::remove(folder_.path() / file);
  };
  expect("generation_config.json", "[]", "no JSON object");
  expect("generation_config.json", "{", "fetch the file again");
  expect("generation_config.json", R"({"system_prompt": 3})", "'system_prompt'");
  expect("generation_config.json", R"({"eos_token_id": 384})", "ids are 0 to 383");
  expect("generation_config.json", R"({"eos_token_id": [1, -1]})", "-1");
  expect("generation_config.json", R"({"temperature": "warm"})", "'temperature' is \"warm\"");
  expect("generation_config.json", R"({"temperature": -1})", "'temperature' is -1");
  expect("generation_config.json", R"({"top_p": 0})", "'top_p' is 0");
  expect("generation_config.json", R"({"top_k": -3})", "'top_k' is -3");
  std::vector<std::string> many;
  for (int i = 0; i < 200; ++i) many.push_back("<|" + std::to_string(i) + "|>");
  expect("tokenizer.json", byte_level_tokenizer_json({}, many).dump(), "vocabulary ends at 383");
}

}  // namespace
}  // namespace fathom::model
