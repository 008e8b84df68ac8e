#include "model/synthetic_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/harmony.h"
#include "model/tokenizer.h"

namespace fathom::model {
namespace {

TEST(SyntheticTokenizer, HasBytesAndWords) {
  for (const int64_t size : {256, 257, 896}) {
    const auto tokenizer = Tokenizer::parse(synthetic_tokenizer_json(size), "tokenizer.json");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->vocab_size(), size);
    EXPECT_EQ(tokenizer->encode("w 1").value(), (std::vector<TokenId>{'w', ' ', '1'}));
    EXPECT_EQ(tokenizer->bytes(static_cast<TokenId>(size) - 1),
              size == 256 ? "\xFF" : " w" + std::to_string(size - 1));
  }
}

TEST(SyntheticTokenizer, HasHarmonysTokensInAVocabularyOfGptOss) {
  const auto tokenizer = Tokenizer::parse(synthetic_tokenizer_json(201088), "tokenizer.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto harmony = HarmonyTokens::find(*tokenizer);
  ASSERT_TRUE(harmony) << harmony.error().message;
  EXPECT_EQ(harmony->return_, 200002);
  EXPECT_EQ(harmony->call, 200012);
  EXPECT_TRUE(tokenizer->is_special(200006));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{201087}), " w201087");
}

}  // namespace
}  // namespace fathom::model
