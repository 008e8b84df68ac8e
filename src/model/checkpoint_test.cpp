#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <string>

#include "core/thread_pool.h"
#include "model/byte_level_tokenizer.h"
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
  EXPECT_EQ(opened->weights.embedding.extent(0), 384);
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
