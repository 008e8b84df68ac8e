#include "kernels/embedding/embedding_gpu.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/expect.h"
#include "core/rng.h"
#include "cuda/device.h"
#include "kernels/embedding/embedding.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

class EmbeddingGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
};

std::vector<float> embedded(const std::vector<int32_t>& tokens, const std::vector<int32_t>& source,
                            const std::vector<int32_t>& sampled, const std::vector<bf16>& table,
                            int64_t width) {
  const auto T = static_cast<int64_t>(tokens.size()), V = static_cast<int64_t>(table.size()) / width;
  GuardedDeviceBuffer<int32_t> on_tokens(tokens), on_source(source), on_sampled(sampled);
  GuardedDeviceBuffer<bf16> on_table(table);
  GuardedDeviceBuffer<float> x(T * width);
  embedding(on_tokens.view<1>({T}), on_source.view<1>({T}), on_sampled.view<1>({on_sampled.size()}),
            on_table.view<2>({V, width}), x.view<2>({T, width}), find_device({0})->stream());
  return x.read();
}

TEST_F(EmbeddingGpu, GathersTheTokensOfTheHostOrOfTheStepBefore) {
  constexpr int64_t kVocabulary = 97;
  for (const int64_t width : {8, 64, 256, 320, 2880})
    for (const int64_t count : {0, 1, 2, 7, 8, 9, 63, 129}) {
      SCOPED_TRACE(testing::Message() << count << " x " << width);
      std::vector<bf16> table(static_cast<size_t>(kVocabulary * width));
      fill_normal(table.data(), static_cast<int64_t>(table.size()), 1, 0, 1);
      std::vector<int32_t> tokens(static_cast<size_t>(count)), source(tokens.size()), named(tokens.size());
      std::vector<int32_t> sampled(41);
      fill_integers(tokens.data(), count, 2, 0, kVocabulary);
      fill_integers(sampled.data(), 41, 3, 0, kVocabulary);
      for (size_t t = 0; t < tokens.size(); ++t) {
        source[t] = t % 3 == 1 ? static_cast<int32_t>(t * 7 % 41) : -1;
        named[t]  = source[t] < 0 ? tokens[t] : sampled[static_cast<size_t>(source[t])];
        if (source[t] >= 0) tokens[t] = 1 << 30;  // ignored
      }
      std::vector<float> expected(static_cast<size_t>(count * width));
      embedding_reference({named.data(), {count}}, View<const bf16, 2>(table.data(), {kVocabulary, width}),
                          {expected.data(), {count, width}}, {});
      EXPECT_EQ(embedded(tokens, source, sampled, table, width), expected);
    }
}

TEST_F(EmbeddingGpu, TokensOutsideTheVocabularyGiveZeros) {
  const std::vector<bf16> table(3 * 8, bf16(1));
  const auto x = embedded({-1, 3, 2, 0}, {-1, -1, -1, 0}, {-1}, table, 8);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(x[i], i / 8 == 2 ? 1.0f : 0.0f) << i;
}

TEST_F(EmbeddingGpu, ShapesThatDoNotFitAreABrokenContract) {
  GuardedDeviceBuffer<float> x(64);
  GuardedDeviceBuffer<int32_t> ids(64);
  GuardedDeviceBuffer<bf16> table(64);
  EXPECT_THROW(embedding(ids.view<1>({1}), ids.view<1>({1}), ids.view<1>({1}), table.view<2>({1, 12}),
                         x.view<2>({1, 12}), nullptr),
               ContractError);
}

}  // namespace
}  // namespace fathom::kernels
