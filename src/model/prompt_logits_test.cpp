#include "model/prompt_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::model {
namespace {

const std::filesystem::path kTinyGoldens(FATHOM_SOURCE_TREE "/tests/goldens");

// Compares with the logits of Hugging Face transformers (model/gpt_oss_test.cpp) for a prompt longer than a
// chunk.
TEST(PromptLogits, AgreeWithTransformersAtEveryPosition) {
  const TempFolder folder;
  ThreadPool threads(2);
  ASSERT_TRUE(make_synthetic_checkpoint({.shape = ModelShape::tiny, .seed = 1}, folder.path(), threads));
  const auto checkpoint             = Checkpoint::open(folder.path()).value();
  const auto golden                 = nlohmann::json::parse(std::ifstream(kTinyGoldens / "tiny.json"));
  const auto tensors                = Safetensors::open(kTinyGoldens / "tiny.safetensors").value();
  const auto expected               = tensors.view<float, 2>("logits").value();
  const std::vector<TokenId> prompt = golden["prompt_ids"];
  ASSERT_GT(prompt.size(), 64u);
  ASSERT_EQ(expected.extent(0), static_cast<int64_t>(prompt.size()));

  for (const size_t count : {prompt.size(), size_t{64}, size_t{1}, size_t{0}}) {
    int64_t position = 0;
    float furthest   = 0;
    prompt_logits(checkpoint, std::span(prompt).first(count), threads, [&](std::span<const float> logits) {
      ASSERT_EQ(static_cast<int64_t>(logits.size()), expected.extent(1));
      for (size_t id = 0; id < logits.size(); ++id)
        furthest = std::max(furthest, std::abs(logits[id] - expected(position, static_cast<int64_t>(id))));
      ++position;
    });
    EXPECT_EQ(position, static_cast<int64_t>(count));
    EXPECT_LT(furthest, 1e-4f);
  }
}

}  // namespace
}  // namespace fathom::model
