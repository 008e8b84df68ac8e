#include "kernels/step_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/device.h"
#include "core/expect.h"
#include "core/rng.h"
#include "kernels/device_vector.h"
#include "kernels/embedding.h"
#include "kernels/rope.h"

namespace fathom::kernels {
namespace {

class StepRows : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_device()) GTEST_SKIP() << "needs a GPU: " << why_no_cuda_device();
  }
};

std::vector<float> embedded(const std::vector<int32_t>& tokens, const std::vector<int32_t>& source,
                            const std::vector<int32_t>& sampled, const std::vector<bf16>& table,
                            int64_t width) {
  const auto T = static_cast<int64_t>(tokens.size()), V = static_cast<int64_t>(table.size()) / width;
  DeviceVector<int32_t> on_tokens(tokens), on_source(source), on_sampled(sampled);
  DeviceVector<bf16> on_table(table);
  DeviceVector<float> x(T * width);
  embed(on_tokens.view<1>({T}), on_source.view<1>({T}), on_sampled.view<1>({on_sampled.size()}),
        on_table.view<2>({V, width}), x.view<2>({T, width}), cuda_device()->stream());
  return x.read();
}

TEST_F(StepRows, EmbedsWhatTheHostOrTheStepBeforeNamed) {
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
        if (source[t] >= 0) tokens[t] = 1 << 30;  // is not looked at
      }
      std::vector<float> expected(static_cast<size_t>(count * width));
      embedding_reference({named.data(), {count}}, {table.data(), {kVocabulary, width}},
                          {expected.data(), {count, width}}, {});
      EXPECT_EQ(embedded(tokens, source, sampled, table, width), expected);
    }
}

TEST_F(StepRows, TokensOutsideTheVocabularyGiveZeros) {
  const std::vector<bf16> table(3 * 8, bf16(1));
  const auto x = embedded({-1, 3, 2, 0}, {-1, -1, -1, 0}, {-1}, table, 8);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(x[i], i / 8 == 2 ? 1.0f : 0.0f) << i;
}

int64_t ulps_apart(float a, float b) {
  const auto line = [](float v) {
    const auto bits = __builtin_bit_cast(int32_t, v);
    return bits < 0 ? int64_t{INT32_MIN} - bits : int64_t{bits};
  };
  return std::abs(line(a) - line(b));
}

TEST_F(StepRows, TurnsAreThoseOfTheReference) {
  std::vector<float> frequencies(32, 0);
  for (size_t k = 0; k < 29; ++k) frequencies[k] = std::pow(150000.0f, -static_cast<float>(k) / 29);
  frequencies[3] = 0.7f;
  for (const int64_t count : {0, 1, 2, 7, 8, 9, 63, 129, 5000}) {
    std::vector<int32_t> positions(static_cast<size_t>(count));
    for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(t * 131071 / 4999);
    if (count > 6) positions[6] = -1;
    DeviceVector<int32_t> on_positions(positions);
    DeviceVector<float> on_frequencies(frequencies), table(count * 64);
    turns(on_positions.view<1>({count}), on_frequencies.view<1>({32}), 1.3465735f, table.view<2>({count, 64}),
          cuda_device()->stream());
    const auto got = table.read();
    std::vector<float> expected(got.size());
    rope_table_reference({positions.data(), {count}}, {frequencies.data(), {32}}, 1.3465735f,
                         {expected.data(), {count, 64}}, {});
    for (size_t i = 0; i < got.size(); ++i) {
      if (positions[i / 64] < 0)
        ASSERT_TRUE(std::isfinite(got[i]));
      else
        ASSERT_LE(ulps_apart(got[i], expected[i]), 2) << "at " << i << ": " << got[i] << ", " << expected[i];
    }
  }
}

TEST_F(StepRows, ShapesThatDoNotFitAreABrokenContract) {
  DeviceVector<float> x(64);
  DeviceVector<int32_t> ids(64);
  DeviceVector<bf16> table(64);
  EXPECT_THROW(embed(ids.view<1>({1}), ids.view<1>({1}), ids.view<1>({1}), table.view<2>({1, 12}),
                     x.view<2>({1, 12}), nullptr),
               ContractError);
  EXPECT_THROW(turns(ids.view<1>({1}), x.view<1>({16}), 1, x.view<2>({1, 32}), nullptr), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
