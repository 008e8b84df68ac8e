#include "kernels/moe/experts_gemv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/expect.h"
#include "core/mxfp4_nvfp4.h"
#include "cuda/device.h"
#include "cuda/graph.h"
#include "kernels/gemm/pack_weights.h"
#include "kernels/guarded_device_buffer.h"
#include "kernels/moe/experts.h"
#include "kernels/moe/pack_experts.h"

namespace fathom::kernels {
namespace {

class PackedExpertsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
};

// E matrices [out, in] in the checkpoint's format, and on the device.
struct Matrices {
  int64_t E, out, in;
  std::vector<uint8_t> blocks, scales;
  std::vector<bf16> bias;

  Matrices(int64_t E_, int64_t out_, int64_t in_) : E(E_), out(out_), in(in_) {
    blocks.resize(static_cast<size_t>(E * out * in / 2));
    scales.resize(static_cast<size_t>(E * out * in / 32));
    bias.resize(static_cast<size_t>(E * out), bf16(0));
  }
  // Sums of `in` products of numbers around 1 are then around 4, some beyond the limit of 7.
  void fill(std::mt19937& random) {
    const int scale = 127 + static_cast<int>(std::lround(std::log2(4 / std::sqrt(1.0 * in) / 2.9)));
    for (auto& two : blocks) two = static_cast<uint8_t>(random());
    for (auto& code : scales) code = static_cast<uint8_t>(scale - 1 + random() % 3);
    std::normal_distribution<float> normal;
    for (auto& number : bias) number = bf16(normal(random));
  }
  Mxfp4Matrices view() const {
    return {.blocks = {blocks.data(), {E, out, in / 32, 16}}, .scales = {scales.data(), {E, out, in / 32}}};
  }
  std::vector<float> numbers() const {
    std::vector<float> w(static_cast<size_t>(E * out * in));
    decode_mxfp4(blocks, scales, w);
    return w;
  }
};

class Packed {
 public:
  // Packs `at_once` experts at a time.
  Packed(const Matrices& m, RowOrder order, int64_t at_once = 1000)
      : w_{.experts = m.E, .rows = packed_rows(order, m.out, 0), .depth = padded(m.in)},
        tiles_(m.E * w_.tiles_of_one() * PackedExperts::kTileBytes),
        scales_(m.E * w_.tiles_of_one() * PackedExperts::kScaleBytes),
        bias_(m.E * w_.rows) {
    const int largest           = *std::max_element(m.scales.begin(), m.scales.end());
    const int64_t of_one        = w_.tiles_of_one() * PackedExperts::kTileBytes;
    const int64_t scales_of_one = w_.tiles_of_one() * PackedExperts::kScaleBytes;
    const GuardedDeviceBuffer blocks(m.blocks), scales(m.scales);
    for (int64_t e = 0; e < m.E; e += at_once) {
      const int64_t n = std::min(at_once, m.E - e), G = m.in / 32;
      pack_experts({blocks.data() + e * m.out * G * 16, {n, m.out, G, 16}},
                   {scales.data() + e * m.out * G, {n, m.out, G}}, order, output_exponent(largest),
                   tiles_.data() + e * of_one, scales_.data() + e * scales_of_one,
                   find_device({0})->stream());
    }
    std::vector<float> bias(static_cast<size_t>(m.E * w_.rows), 0.0f);
    for (int64_t e = 0; e < m.E; ++e)
      for (int64_t p = 0; p < w_.rows; ++p)
        if (const int64_t row = source_row(order, p, m.out, 0); row >= 0)
          bias[static_cast<size_t>(e * w_.rows + p)] =
              static_cast<float>(m.bias[static_cast<size_t>(e * m.out + row)]);
    bias_.write(bias);
    w_.output_scale = static_cast<float>(std::ldexp(1.0, output_exponent(largest)));
    w_.tiles        = tiles_.data();
    w_.scales       = scales_.data();
    w_.bias         = bias_.data();
    find_device({0})->synchronize();
  }
  const PackedExperts& view() const { return w_; }
  std::vector<uint8_t> tiles() const { return tiles_.read(); }
  std::vector<uint8_t> scales() const { return scales_.read(); }

 private:
  PackedExperts w_;
  GuardedDeviceBuffer<uint8_t> tiles_, scales_;
  GuardedDeviceBuffer<float> bias_;
};

struct Problem {
  int64_t H, I, E, top_k;
  std::mt19937 random{7};
  Matrices mlp1, mlp2;
  Packed w1, w2;
  float limit = 7, alpha = 1.702f;

  Problem(int64_t H_, int64_t I_, int64_t E_, int64_t top_k_)
      : H(H_),
        I(I_),
        E(E_),
        top_k(top_k_),
        mlp1(filled(2 * I, H)),
        mlp2(filled(H, I)),
        w1(mlp1, RowOrder::gate_pairs),
        w2(mlp2, RowOrder::plain) {}

 private:
  Matrices filled(int64_t out, int64_t in) {
    Matrices m(E, out, in);
    m.fill(random);
    return m;
  }
};

struct Tokens {
  int64_t T;
  std::vector<bf16> x;
  std::vector<int32_t> experts;
  std::vector<float> weights;

  Tokens(const Problem& p, int64_t T_, int seed) : T(T_) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < T * p.H; ++i) x.push_back(bf16(normal(random)));
    for (int64_t i = 0; i < T * p.top_k; ++i) weights.push_back(normal(random));
    std::vector<int32_t> all(static_cast<size_t>(p.E));
    for (size_t e = 0; e < all.size(); ++e) all[e] = static_cast<int32_t>(e);
    for (int64_t t = 0; t < T; ++t) {
      std::shuffle(all.begin(), all.end(), random);
      experts.insert(experts.end(), all.begin(), all.begin() + p.top_k);
    }
  }

  Tokens only(const Problem& p, int64_t t) const {
    Tokens one(*this);
    one.T       = 1;
    one.x       = {x.begin() + t * p.H, x.begin() + (t + 1) * p.H};
    one.experts = {experts.begin() + t * p.top_k, experts.begin() + (t + 1) * p.top_k};
    one.weights = {weights.begin() + t * p.top_k, weights.begin() + (t + 1) * p.top_k};
    return one;
  }
};

struct Result {
  std::vector<bf16> a;                // [T top_k, units]
  std::vector<float> expert_outputs;  // [T top_k, H]
};

Result run(const Problem& p, const Tokens& of) {
  const StreamRef stream = find_device({0})->stream();
  const int64_t S = of.T * p.top_k, units = p.w1.view().rows / 2;
  const GuardedDeviceBuffer x(of.x);
  const GuardedDeviceBuffer experts(of.experts);
  const GuardedDeviceBuffer weights(of.weights);
  const GuardedDeviceBuffer<bf16> a(S * units);
  const GuardedDeviceBuffer<float> expert_outputs(S * p.H);
  const View<const int32_t, 2> ids = experts.view({of.T, p.top_k});
  experts_up_gemv(x.view({of.T, p.H}), ids, p.w1.view(), p.limit, p.alpha, a.view({S, units}), stream);
  experts_down_gemv(a.view({S, units}), ids, weights.view({of.T, p.top_k}), p.w2.view(),
                    expert_outputs.view({S, p.H}), stream);
  return {a.read(), expert_outputs.read()};
}

// Both layers in one launch, and the word of its barrier from one launch to the next.
class Fused {
 public:
  Fused(const Problem& p, const Tokens& of)
      : p_(p),
        of_(of),
        rows_(of.T * p.top_k),
        x_(of.x),
        experts_(of.experts),
        weights_(of.weights),
        a_(rows_ * p.w1.view().rows / 2),
        expert_outputs_(rows_ * p.H) {}

  void launch(const GuardedDeviceBuffer<uint32_t>& barrier) const {
    experts_gemv_fused(x_.view({of_.T, p_.H}), experts_.view({of_.T, p_.top_k}),
                       weights_.view({of_.T, p_.top_k}), p_.w1.view(), p_.w2.view(), p_.limit, p_.alpha,
                       a_.view({rows_, p_.w1.view().rows / 2}), expert_outputs_.view({rows_, p_.H}),
                       barrier.data(), find_device({0})->stream());
  }
  void poison() const {
    find_device({0})->set_words(a_.data(), a_.size() * 2, 0x7fffffff);
    find_device({0})->set_words(expert_outputs_.data(), expert_outputs_.size() * 4, 0x7fffffff);
  }
  Result read() const { return {a_.read(), expert_outputs_.read()}; }

 private:
  const Problem& p_;
  const Tokens& of_;
  int64_t rows_;
  GuardedDeviceBuffer<bf16> x_;
  GuardedDeviceBuffer<int32_t> experts_;
  GuardedDeviceBuffer<float> weights_;
  GuardedDeviceBuffer<bf16> a_;
  GuardedDeviceBuffer<float> expert_outputs_;
};

std::vector<uint32_t> zero_word() { return {0}; }

// The result of expert row s alone.
std::vector<float> reference(const Problem& p, const Tokens& of, int64_t s) {
  std::vector<float> x, y(static_cast<size_t>(p.H), 0.0f);
  for (int64_t h = 0; h < p.H; ++h)
    x.push_back(static_cast<float>(of.x[static_cast<size_t>(s / p.top_k * p.H + h)]));
  experts_reference({x.data(), {1, p.H}}, {&of.experts[static_cast<size_t>(s)], {1, 1}},
                    {&of.weights[static_cast<size_t>(s)], {1, 1}},
                    {.mlp1      = p.mlp1.view(),
                     .mlp1_bias = {p.mlp1.bias.data(), {p.E, 2 * p.I}},
                     .mlp2      = p.mlp2.view(),
                     .mlp2_bias = {p.mlp2.bias.data(), {p.E, p.H}},
                     .limit     = p.limit,
                     .alpha     = p.alpha},
                    {y.data(), {1, p.H}}, {});
  return y;
}

// Each sum of K products errs by at most 4 sqrt(K) u sum |products|, and passes on the errors of its terms.
// The first layer's results are rounded to bf16, by at most 2^-8 of them.
void expect_near_reference(const Problem& p, const Tokens& of) {
  const Result got            = run(p, of);
  const std::vector<float> w1 = p.mlp1.numbers(), w2 = p.mlp2.numbers();
  constexpr double kRoundOff = 0x1p-24, kHalfUlp = 0x1p-8;
  const auto error = [](int64_t depth, double products) {
    return kRoundOff * (4 * std::sqrt(static_cast<double>(depth)) + 4) * products;
  };
  struct Sum {
    double value, error;
  };
  const int64_t units = p.w1.view().rows / 2;
  for (int64_t s = 0; s < of.T * p.top_k; ++s) {
    const int64_t e = of.experts[static_cast<size_t>(s)];
    if (e < 0) {
      for (int64_t h = 0; h < p.H; ++h)
        ASSERT_TRUE(std::isnan(got.expert_outputs[static_cast<size_t>(s * p.H + h)]));
      for (int64_t u = 0; u < units; ++u)
        ASSERT_TRUE(std::isnan(static_cast<float>(got.a[static_cast<size_t>(s * units + u)])));
      continue;
    }
    const auto unit = [&](int64_t n) -> Sum {
      const double bias = static_cast<float>(p.mlp1.bias[static_cast<size_t>(e * 2 * p.I + n)]);
      double sum = bias, size = std::fabs(bias);
      for (int64_t h = 0; h < p.H; ++h) {
        const double product = static_cast<double>(w1[static_cast<size_t>((e * 2 * p.I + n) * p.H + h)]) *
                               static_cast<float>(of.x[static_cast<size_t>(s / p.top_k * p.H + h)]);
        sum += product;
        size += std::fabs(product);
      }
      return {sum, error(p.H, size)};
    };
    std::vector<Sum> a;
    for (int64_t u = 0; u < units; ++u) {
      const double is = static_cast<float>(got.a[static_cast<size_t>(s * units + u)]);
      if (u >= p.I) {
        ASSERT_EQ(is, 0) << "padding";
        continue;
      }
      const Sum gate = unit(2 * u), up = unit(2 * u + 1);
      const double g = std::min<double>(gate.value, p.limit);
      const double l = std::clamp<double>(up.value, -p.limit, p.limit) + 1;
      const double v = g / (1 + std::exp(-p.alpha * g));
      // |d(g sigmoid(alpha g)) / dg| <= 1.1; the exponential errs by 2 ulp and the rounding of its argument.
      const double before = 1.1 * std::fabs(l) * gate.error + std::fabs(v) * up.error +
                            kRoundOff * (16 + 4 * std::fabs(p.alpha * g)) * std::fabs(v * l);
      a.push_back({v * l, before + kHalfUlp * (std::fabs(v * l) + before) + 0x1p-134});
      ASSERT_NEAR(is, a.back().value, a.back().error) << "slot " << s << ", unit " << u;
    }
    const double much                 = std::fabs(of.weights[static_cast<size_t>(s)]);
    const std::vector<float> expected = reference(p, of, s);
    for (int64_t h = 0; h < p.H; ++h) {
      const double bias = static_cast<float>(p.mlp2.bias[static_cast<size_t>(e * p.H + h)]);
      double size = std::fabs(bias), brought = 0, sum = bias;
      for (int64_t u = 0; u < p.I; ++u) {
        const double w = w2[static_cast<size_t>((e * p.H + h) * p.I + u)];
        size += std::fabs(w * a[static_cast<size_t>(u)].value);
        brought += std::fabs(w) * a[static_cast<size_t>(u)].error;
        sum += w * static_cast<float>(got.a[static_cast<size_t>(s * units + u)]);
      }
      const double own = much * (error(p.I, size + brought) + 4 * kRoundOff * size) + 0x1p-140;
      const double is  = got.expert_outputs[static_cast<size_t>(s * p.H + h)];
      ASSERT_NEAR(is, expected[static_cast<size_t>(h)], much * brought + own)
          << "slot " << s << ", output " << h;
      // Given the first layer's result, only the second layer's own error remains.
      ASSERT_NEAR(is, of.weights[static_cast<size_t>(s)] * sum, own) << "slot " << s << ", output " << h;
    }
  }
}

bool same_bits(const Result& a, const Result& b) {
  return a.a.size() == b.a.size() && a.expert_outputs.size() == b.expert_outputs.size() &&
         std::memcmp(a.a.data(), b.a.data(), a.a.size() * sizeof(bf16)) == 0 &&
         std::memcmp(a.expert_outputs.data(), b.expert_outputs.data(),
                     a.expert_outputs.size() * sizeof(float)) == 0;
}

// The product with a unit vector is a column of the matrix.
TEST_F(PackedExpertsTest, EveryCodeAndEveryScaleComeOutExactly) {
  for (const int smallest : {0, 3, 127}) {
    SCOPED_TRACE(smallest);
    Matrices m(1, 64, 64);
    for (size_t i = 0; i < m.blocks.size(); ++i) m.blocks[i] = static_cast<uint8_t>(i * 0x11 + i / 16 * 0x21);
    // 128 blocks; 6 2^126 is no number of fp32 any more.
    for (size_t b = 0; b < m.scales.size(); ++b)
      m.scales[b] = static_cast<uint8_t>(std::min<size_t>(252, static_cast<size_t>(smallest) + b));
    const std::vector<float> w = m.numbers();
    const Packed packed(m, RowOrder::plain);
    const GuardedDeviceBuffer experts(std::vector<int32_t>(8, 0));
    const GuardedDeviceBuffer weights(std::vector<float>(8, 1.0f));
    for (int64_t c = 0; c < 64; c += 8) {
      std::vector<bf16> ones(8 * 64, bf16(0));
      for (int64_t t = 0; t < 8; ++t) ones[static_cast<size_t>(t * 64 + c + t)] = bf16(1);
      const GuardedDeviceBuffer a(ones);
      const GuardedDeviceBuffer<float> expert_outputs(8 * 64);
      experts_down_gemv(a.view({8, 64}), experts.view({8, 1}), weights.view({8, 1}), packed.view(),
                        expert_outputs.view({8, 64}), find_device({0})->stream());
      const std::vector<float> got = expert_outputs.read();
      for (int64_t t = 0; t < 8; ++t)
        for (int64_t r = 0; r < 64; ++r)
          ASSERT_EQ(got[static_cast<size_t>(t * 64 + r)], w[static_cast<size_t>(r * 64 + c + t)])
              << "row " << r << ", column " << c + t << ", scale "
              << int{m.scales[static_cast<size_t>(r * 2 + c / 32)]};
    }
  }
}

TEST_F(PackedExpertsTest, AgreeWithTheReferenceAtEveryEdge) {
  for (const auto& [H, I] : {std::pair{64, 32}, {96, 160}, {256, 224}, {416, 352}}) {
    const Problem p(H, I, 5, 3);
    for (const int64_t T : {1, 2, 3, 7, 8}) {
      SCOPED_TRACE(testing::Message() << "T " << T << ", H " << H << ", I " << I);
      expect_near_reference(p, Tokens(p, T, static_cast<int>(T)));
    }
  }
}

TEST_F(PackedExpertsTest, AgreeWithTheReferenceAtTheModelsSize) {
  const Problem p(2880, 2880, 5, 4);
  expect_near_reference(p, Tokens(p, 1, 1));
  expect_near_reference(p, Tokens(p, 3, 2));
}

TEST_F(PackedExpertsTest, OneTakesAllOthersNothingAndEachTakesAll) {
  const Problem one(64, 64, 6, 1);
  Tokens all(one, 8, 3);
  std::fill(all.experts.begin(), all.experts.end(), 4);
  expect_near_reference(one, all);
  const Problem each(64, 64, 4, 4);
  expect_near_reference(each, Tokens(each, 8, 4));
}

TEST_F(PackedExpertsTest, PaddingIsLeftAsItIs) {
  const Problem p(64, 64, 6, 2);
  Tokens of(p, 7, 5);
  for (const size_t s : {2, 3, 12, 13}) of.experts[s] = -1;
  expect_near_reference(p, of);
  std::fill(of.experts.begin(), of.experts.end(), -1);
  expect_near_reference(p, of);
}

TEST_F(PackedExpertsTest, ARowDoesNotDependOnOthersNorOnWhen) {
  for (const auto& [H, I] : {std::pair{96, 64}, {2880, 2880}}) {
    const Problem p(H, I, 8, 4);
    const Tokens of(p, 8, 6);
    const Result all = run(p, of);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(same_bits(all, run(p, of)));
    const auto units = static_cast<size_t>(p.w1.view().rows / 2), k = static_cast<size_t>(p.top_k);
    for (size_t t = 0; t < 8; ++t) {
      const Result one = run(p, of.only(p, static_cast<int64_t>(t)));
      EXPECT_EQ(0, std::memcmp(one.a.data(), all.a.data() + t * k * units, one.a.size() * sizeof(bf16)));
      EXPECT_EQ(
          0, std::memcmp(one.expert_outputs.data(), all.expert_outputs.data() + t * one.expert_outputs.size(),
                         one.expert_outputs.size() * sizeof(float)));
    }
  }
}

TEST_F(PackedExpertsTest, PackInPartsWhatTheyPackAtOnce) {
  std::mt19937 random(8);
  for (const auto order : {RowOrder::plain, RowOrder::gate_pairs}) {
    Matrices m(5, 90, 96);
    m.fill(random);
    const Packed at_once(m, order), in_parts(m, order, 2);
    EXPECT_EQ(at_once.tiles(), in_parts.tiles());
    EXPECT_EQ(at_once.scales(), in_parts.scales());
  }
}

// One launch, several in a row and those of a graph give the bits of the two launches. Each run begins with
// poisoned results, so that what a launch leaves out is seen.
void expect_fused_like_two_launches(const Problem& p, const Tokens& of,
                                    const GuardedDeviceBuffer<uint32_t>& barrier) {
  const Result expected = run(p, of);
  const Fused fused(p, of);
  for (int i = 0; i < 3; ++i) {
    fused.poison();
    fused.launch(barrier);
    ASSERT_TRUE(same_bits(fused.read(), expected)) << "launch " << i;
  }
  fused.poison();
  for (int i = 0; i < 20; ++i) fused.launch(barrier);
  ASSERT_TRUE(same_bits(fused.read(), expected)) << "launches in a row";
  const uint32_t word = barrier.read()[0];
  EXPECT_TRUE(word == 0 || word == uint32_t{1} << 31) << word;
}

TEST_F(PackedExpertsTest, FusedLayersGiveTheBitsOfTwoLaunches) {
  const GuardedDeviceBuffer barrier(zero_word());
  for (const auto& [H, I] :
       {std::pair{64, 32}, {96, 160}, {416, 352}, {2880, 2880}, {2880, 96}, {96, 2880}}) {
    const Problem p(H, I, 9, 4);
    for (int64_t T = 1; T <= 8; ++T) {
      SCOPED_TRACE(testing::Message() << "T " << T << ", H " << H << ", I " << I);
      expect_fused_like_two_launches(p, Tokens(p, T, static_cast<int>(T)), barrier);
    }
  }
}

// A single token with 1, 2 and 7 experts: from fewer strips than CTAs to more than shared memory holds.
TEST_F(PackedExpertsTest, FusedLayersOfOneTokenWithFewAndManyExperts) {
  const GuardedDeviceBuffer barrier(zero_word());
  for (const int64_t top_k : {1, 2, 7, 12}) {
    SCOPED_TRACE(top_k);
    const Problem p(2880, 2880, 12, top_k);
    expect_fused_like_two_launches(p, Tokens(p, 1, 11), barrier);
  }
}

TEST_F(PackedExpertsTest, FusedLayersWithPaddingAndWithOneExpertForAll) {
  const GuardedDeviceBuffer barrier(zero_word());
  const Problem one(2880, 2880, 3, 1);
  Tokens all(one, 8, 3);
  std::fill(all.experts.begin(), all.experts.end(), 2);
  expect_fused_like_two_launches(one, all, barrier);
  for (const auto& [H, I] : {std::pair{64, 64}, {2880, 2880}}) {
    const Problem p(H, I, 6, 2);
    Tokens of(p, 7, 5);
    for (const size_t s : {2, 3, 12, 13}) of.experts[s] = -1;
    expect_fused_like_two_launches(p, of, barrier);
    std::fill(of.experts.begin(), of.experts.end(), -1);
    expect_fused_like_two_launches(p, of, barrier);
    Tokens single(p, 1, 6);
    single.experts = {-1, 4};
    expect_fused_like_two_launches(p, single, barrier);
    single.experts = {-1, -1};
    expect_fused_like_two_launches(p, single, barrier);
  }
}

// A graph replays launches of both grids, which use one word in turn.
TEST_F(PackedExpertsTest, FusedLayersInAGraphThatIsReplayed) {
  const GuardedDeviceBuffer barrier(zero_word());
  const Problem p(2880, 2880, 8, 4);
  const Tokens one(p, 1, 1), three(p, 3, 2);
  const Result expected_one = run(p, one), expected_three = run(p, three);
  const Fused of_one(p, one), of_three(p, three);
  of_one.launch(barrier);  // loads the kernels, which cannot be done during a capture
  of_three.launch(barrier);
  find_device({0})->synchronize();
  const CudaGraph graph(find_device({0})->stream(), [&] {
    for (int i = 0; i < 3; ++i) {
      of_one.launch(barrier);
      of_three.launch(barrier);
    }
  });
  for (int i = 0; i < 3; ++i) {
    of_one.poison();
    of_three.poison();
    graph.launch(find_device({0})->stream());
    EXPECT_TRUE(same_bits(of_one.read(), expected_one)) << "replay " << i;
    EXPECT_TRUE(same_bits(of_three.read(), expected_three)) << "replay " << i;
  }
}

TEST_F(PackedExpertsTest, NoRowsNoWork) {
  const Problem p(64, 64, 6, 2);
  EXPECT_TRUE(run(p, Tokens(p, 0, 9)).expert_outputs.empty());
}

TEST_F(PackedExpertsTest, BrokenContractsAreNamed) {
  const Problem p(64, 64, 6, 4);
  EXPECT_THROW(run(p, Tokens(p, 9, 1)), ContractError);
  const Problem wide(64, 64, 6, 5);
  EXPECT_THROW(run(wide, Tokens(wide, 8, 1)), ContractError);
  const View<const uint8_t, 4> blocks(nullptr, {1, 64, 2, 15});
  const View<const uint8_t, 3> scales(nullptr, {1, 64, 2});
  EXPECT_THROW(pack_experts(blocks, scales, RowOrder::plain, 0, nullptr, nullptr, nullptr), ContractError);
  EXPECT_EQ(output_exponent(0), 0);
  EXPECT_EQ(output_exponent(128), 0);
  EXPECT_EQ(output_exponent(254), 126);
}

}  // namespace
}  // namespace fathom::kernels
