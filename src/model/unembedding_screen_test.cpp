#include "model/unembedding_screen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
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

  // Returns the number of candidates, or -1 if there was no screening.
  int64_t check(const std::vector<float>& x, const std::vector<bf16>& w, const DrawRule& rule) {
    const auto H = std::ssize(x), V = std::ssize(w) / H;
    const View<const bf16, 2> weights(w.data(), {V, H});
    UnembeddingScreen screen(weights, threads);
    std::vector<float> bound(static_cast<size_t>(V));
    cpu_ops().linear_int8(View<const float, 2>(x.data(), {1, H}), screen.copy(), {}, Output::overwrite,
                          View<float, 2>(bound.data(), {1, V}), on);
    std::vector<int64_t> ids{-5};
    if (!screen.candidates(x, bound, rule, ids)) return -1;
    const std::vector<float> exact = linear(x, weights);
    const int64_t chosen           = rule.temperature > 0
                                         ? gumbel_argmax(exact, rule.temperature, rule.seed, rule.position)
                                         : std::max_element(exact.begin(), exact.end()) - exact.begin();
    EXPECT_TRUE(std::find(ids.begin(), ids.end(), chosen) != ids.end())
        << V << " x " << H << ", temperature " << rule.temperature;
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    // Rows by themselves have the bits that they have among all.
    std::vector<bf16> picked;
    for (const int64_t v : ids) picked.insert(picked.end(), w.begin() + v * H, w.begin() + (v + 1) * H);
    const std::vector<float> again = linear(x, View<const bf16, 2>(picked.data(), {std::ssize(ids), H}));
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(0, std::memcmp(&again[i], &exact[static_cast<size_t>(ids[i])], sizeof(float)))
          << "row " << ids[i];
    return std::ssize(ids);
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
  for (const int64_t V : {1, 2, 7, 500, 5003})
    for (const int64_t H : {1, 31, 33, 512})
      for (const double temperature : {0.0, 0.05, 1.0, 40.0}) {
        const auto w = weights_of(V, H, static_cast<uint64_t>(V + H), 0.05);
        for (uint64_t seed = 0; seed < 3; ++seed)
          EXPECT_GE(check(input_of(H, seed), w, {.temperature = temperature, .seed = seed, .position = 9}),
                    1);
      }
}

TEST_F(Screen, RulesMostOut) {
  const auto w = weights_of(20000, 512, 3, 0.05);
  EXPECT_LT(check(input_of(512, 1), w, {}), 500);
  EXPECT_LT(check(input_of(512, 2), w, {.temperature = 0.7, .seed = 4, .position = 2}), 500);
}

// Rows along x that differ in last bits, and some not at all: closer than the copy is exact.
TEST_F(Screen, KeepsNearTies) {
  const int64_t V = 3000, H = 256;
  const auto x = input_of(H, 5);
  auto w       = weights_of(V, H, 6, 0.05);
  for (int64_t i = 0; i < 200; ++i)
    for (int64_t k = 0; k < H; ++k) {
      bf16& number = w[static_cast<size_t>(i * 13 * H + k)];
      number       = bf16(0.1f * x[static_cast<size_t>(k)]);
      if (i % 5 != 0 && (i + k) % 17 == 0) number.bits ^= 1;
    }
  EXPECT_GE(check(x, w, {}), 100);
  EXPECT_GE(check(x, w, {.temperature = 0.01, .seed = 1}), 1);
}

TEST_F(Screen, GivesUpWhereANumberIsNotFinite) {
  const auto w = weights_of(100, 64, 7, 1);
  const auto x = input_of(64, 8);
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    auto in_w = w;
    auto in_x = x;
    in_w[70]  = bf16(bad);
    in_x[5]   = bad;
    EXPECT_EQ(check(x, in_w, {}), -1);
    EXPECT_EQ(check(in_x, w, {}), -1);
  }
  EXPECT_EQ(check(x, w, {.temperature = 1e-320}), -1);
}

}  // namespace
}  // namespace fathom::model
