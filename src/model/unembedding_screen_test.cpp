#include "model/unembedding_screen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "core/gumbel.h"
#include "core/rng.h"
#include "model/ops.h"

namespace fathom::model {
namespace {

using kernels::Output;

constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNan      = std::numeric_limits<float>::quiet_NaN();

class Screen : public testing::Test {
 protected:
  ThreadPool threads{2};
  Buffer<std::byte> scratch{cpu_ops().scratch_bytes({.rows         = 4,
                                                     .hidden       = 512,
                                                     .intermediate = 32,
                                                     .heads        = 1,
                                                     .head_dim     = 16,
                                                     .experts      = 1,
                                                     .top_k        = 1,
                                                     .threads      = 2})};
  const Execution on{.threads = &threads, .scratch = scratch.view()};

  std::vector<float> linear(const std::vector<float>& x, View<const bf16, 2> w) {
    std::vector<float> y(static_cast<size_t>(w.extent(0)));
    cpu_ops().linear(View<const float, 2>(x.data(), {1, std::ssize(x)}), w, {}, Output::overwrite,
                     View<float, 2>(y.data(), {1, w.extent(0)}), on);
    return y;
  }

  // Returns the number of logits that were computed.
  int64_t check(const std::vector<float>& x, const std::vector<bf16>& w, const std::vector<DrawRule>& rules) {
    const auto R = std::ssize(rules), H = std::ssize(x) / R, V = std::ssize(w) / H;
    const View<const bf16, 2> weights(w.data(), {V, H});
    UnembeddingScreen screen(weights, threads);
    std::vector<float> found(static_cast<size_t>(R * V));
    int64_t computed = 0;
    for (int call = 0; call < 2; ++call) {
      screen.logits(cpu_ops(), View<const float, 2>(x.data(), {R, H}), rules,
                    View<float, 2>(found.data(), {R, V}), on);
      computed = 0;
      for (int64_t r = 0; r < R; ++r) {
        const std::vector<float> exact = linear({x.begin() + r * H, x.begin() + (r + 1) * H}, weights);
        const std::span<const float> row(found.data() + r * V, static_cast<size_t>(V));
        const DrawRule& rule = rules[static_cast<size_t>(r)];
        for (int64_t v = 0; v < V; ++v) {
          const auto i = static_cast<size_t>(v);
          if (row[i] == -kInfinity && exact[i] != -kInfinity) continue;
          ++computed;
          EXPECT_EQ(0, std::memcmp(&row[i], &exact[i], sizeof(float))) << "row " << r << ", token " << v;
        }
        if (std::any_of(exact.begin(), exact.end(), [](float y) { return !std::isfinite(y); })) continue;
        const auto chosen = [&](std::span<const float> y) {
          return rule.temperature > 0 ? gumbel_argmax(y, rule.temperature, rule.seed, rule.position)
                                      : std::max_element(y.begin(), y.end()) - y.begin();
        };
        EXPECT_EQ(chosen(row), chosen(exact)) << V << " x " << H << ", temperature " << rule.temperature;
      }
    }
    return computed;
  }
};

std::vector<bf16> weights_of(int64_t V, int64_t H, uint64_t seed, double deviation) {
  std::vector<bf16> w(static_cast<size_t>(V * H));
  fill_normal(w.data(), V * H, seed, 0, deviation);
  return w;
}
std::vector<float> input_of(int64_t H, uint64_t seed) {
  std::vector<float> x(static_cast<size_t>(H));
  fill_normal(x.data(), H, seed, 0, 1);
  return x;
}

TEST_F(Screen, KeepsWhatIsChosen) {
  for (const int64_t V : {1, 2, 7, 500, 4095, 4097, 9001})
    for (const int64_t H : {1, 31, 33, 512})
      for (const double temperature : {0.0, 0.05, 1.0, 40.0}) {
        const auto w = weights_of(V, H, static_cast<uint64_t>(V + H), 0.05);
        for (const int64_t R : {1, 3}) {
          std::vector<DrawRule> rules;
          for (int64_t r = 0; r < R; ++r)
            rules.push_back(
                {.temperature = r == 2 ? 0 : temperature, .seed = static_cast<uint64_t>(r), .position = 9});
          EXPECT_GE(check(input_of(R * H, 5), w, rules), R);
        }
      }
}

TEST_F(Screen, RulesMostOut) {
  const auto w = weights_of(20000, 512, 3, 0.05);
  EXPECT_LT(check(input_of(512, 1), w, {{}}), 300);
  EXPECT_LT(check(input_of(512, 2), w, {{.temperature = 0.7, .seed = 4, .position = 2}}), 300);
}

// Rows along x that differ in last bits, and some not at all: closer than the copy is exact.
TEST_F(Screen, KeepsNearTies) {
  const int64_t V = 20000, H = 256;
  const auto x = input_of(H, 5);
  auto w       = weights_of(V, H, 6, 0.05);
  for (int64_t i = 0; i < 200; ++i)
    for (int64_t k = 0; k < H; ++k) {
      bf16& number = w[static_cast<size_t>(i * 13 * H + k)];
      number       = bf16(0.1f * x[static_cast<size_t>(k)]);
      if (i % 5 != 0 && (i + k) % 17 == 0) number.bits ^= 1;
    }
  const int64_t computed = check(x, w, {{}});
  EXPECT_GE(computed, 100);
  EXPECT_LE(computed, V / 64);
  EXPECT_GE(check(x, w, {{.temperature = 0.01, .seed = 1}}), 1);
}

// All logits then, of every row.
TEST_F(Screen, ComputesAllWhereItCannotRuleOut) {
  const auto w = weights_of(100, 64, 7, 1);
  const auto x = input_of(128, 8);
  EXPECT_EQ(check(std::vector<float>(128, 0.0f), w, {{}, {}}), 200);  // all are as large
  for (const float bad : {kNan, kInfinity}) {
    auto in_w = w;
    auto in_x = x;
    in_w[70]  = bf16(bad);
    in_x[5]   = bad;
    EXPECT_EQ(check(x, in_w, {{}, {.temperature = 1}}), 200);
    EXPECT_EQ(check(in_x, w, {{}, {.temperature = 1}}), 200);
  }
}

}  // namespace
}  // namespace fathom::model
