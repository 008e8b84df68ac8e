// The GEMMs on the wgmma main loop: dense (kernels/gemm/linear_gpu.h) and experts
// (kernels/moe/experts_grouped_gemm.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/expect.h"
#include "core/mxfp4_nvfp4.h"
#include "cuda/device.h"
#include "kernels/gemm/linear_gpu.h"
#include "kernels/gemm/pack_weights.h"
#include "kernels/guarded_device_buffer.h"
#include "kernels/moe/experts_grouped_gemm.h"
#include "kernels/moe/pack_experts.h"
#include "kernels/moe/permute.h"

namespace fathom::kernels {
namespace {

constexpr double kRoundOff = 0x1p-24, kRoundOffBf16 = 0x1p-8;
const float kNan = std::numeric_limits<float>::quiet_NaN();

size_t at(int64_t i) { return static_cast<size_t>(i); }

// The error bound of a sum of K products, with `size` the sum of their magnitudes.
double sum_error(int64_t K, double size) { return kRoundOff * 4 * std::sqrt(static_cast<double>(K)) * size; }

class ManyRows : public testing::Test {
 protected:
  void SetUp() override {
    device = find_device({0});
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }

  Device* device = nullptr;
  std::mt19937 random{17};
};

std::vector<bf16> normal(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> numbers;
  std::vector<bf16> values;
  for (int64_t i = 0; i < n; ++i) values.emplace_back(numbers(random));
  return values;
}

std::vector<float> floats(const std::vector<bf16>& values) { return {values.begin(), values.end()}; }

struct Sum {
  double value, size;  // size: the sum of the magnitudes
};
Sum dot(const float* a, const float* b, int64_t n) {
  Sum sum{0, 0};
  for (int64_t i = 0; i < n; ++i) {
    const double product = static_cast<double>(a[i]) * b[i];
    sum.value += product;
    sum.size += std::fabs(product);
  }
  return sum;
}

// ---- dense ----

// Packed weights [rows, K], and x [T, K] with a larger stride, with NaN between the rows.
struct Product {
  int64_t T, rows, K, stride = K + 8;
  std::vector<bf16> w, bias, x;
  GuardedDeviceBuffer<bf16> tiles, x_there;
  GuardedDeviceBuffer<float> bias_there;

  Product(int64_t T_, int64_t rows_, int64_t K_, std::mt19937& random)
      : T(T_),
        rows(rows_),
        K(K_),
        w(normal(rows * K, random)),
        bias(normal(rows, random)),
        x(normal(T * K, random)),
        tiles(padded(rows) * K),
        x_there(T * stride),
        bias_there(padded(rows)) {
    std::vector<bf16> apart(at(T * stride), bf16(kNan));
    for (int64_t t = 0; t < T; ++t) std::copy_n(x.begin() + t * K, K, apart.begin() + t * stride);
    x_there.write(apart);
    const StreamRef stream = find_device({0})->stream();
    const GuardedDeviceBuffer w_there(w), plain_bias(bias);
    pack_matrix(w_there.view({rows, K}), RowOrder::plain, 0, 0, tiles.data(), stream);
    pack_bias(plain_bias.view({1, rows}), RowOrder::plain, 0, padded(rows), bias_there.data(), stream);
    find_device({0})->synchronize();
  }

  PackedMatrix matrix() const {
    return {.tiles = tiles.data(), .bias = bias_there.data(), .rows = padded(rows), .depth = K};
  }
  View<const bf16, 2> x_view(int64_t first, int64_t n) const {
    return {x_there.data() + first * stride, {n, K}, {stride, 1}};
  }
};

class ManyRowsDense : public ManyRows {
 protected:
  Product product(int64_t T, int64_t rows, int64_t K) { return {T, rows, K, random}; }

  std::vector<float> run(const Product& p, int64_t first, int64_t n,
                         SumOrder order = SumOrder::by_rows) const {
    const GuardedDeviceBuffer<float> y(n * p.rows);
    linear_gemm(p.x_view(first, n), p.matrix(), y.view({n, p.rows}), device->stream(), order);
    return y.read();
  }
};

TEST_F(ManyRowsDense, AgreeWithSumsInDouble) {
  struct Case {
    int64_t rows, K;
  };
  for (const Case& c : {Case{1, 64},
                        {64, 64},
                        {64, 128},
                        {128, 192},
                        {192, 128},
                        {197, 2880},
                        {130, 4096},
                        {2880, 64},
                        {1000, 448}})
    for (const int64_t T : {1, 9, 16, 17, 31, 33, 63, 64, 65, 127, 129, 300}) {
      if (c.rows * c.K > 200000 && T % 10 != 3 && T != 129) continue;
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.K << ", T " << T);
      const Product p            = product(T, c.rows, c.K);
      const std::vector<float> w = floats(p.w), x = floats(p.x), bias = floats(p.bias);
      const int64_t y_stride = c.rows + 3;
      std::vector<float> before(at(T * y_stride), kNan);
      for (int64_t t = 0; t < T; ++t)
        for (int64_t n = 0; n < c.rows; ++n) before[at(t * y_stride + n)] = static_cast<float>(t - n % 7);
      const GuardedDeviceBuffer<float> y(T * y_stride);
      const GuardedDeviceBuffer added(before);
      linear_gemm(p.x_view(0, T), p.matrix(), {y.data(), {T, c.rows}, {y_stride, 1}}, device->stream());
      linear_add_gemm(p.x_view(0, T), p.matrix(), {added.data(), {T, c.rows}, {y_stride, 1}},
                      device->stream());
      const std::vector<float> got = y.read(), got_added = added.read();
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t n = 0; n < c.rows; ++n) {
          const Sum sum      = dot(&x[at(t * c.K)], &w[at(n * c.K)], c.K);
          const double value = sum.value + bias[at(n)], was = before[at(t * y_stride + n)];
          const double error = sum_error(c.K, sum.size) + kRoundOff * std::fabs(value);
          ASSERT_NEAR(got[at(t * y_stride + n)], value, error) << "row " << t << ", output " << n;
          ASSERT_NEAR(got_added[at(t * y_stride + n)], was + value,
                      error + kRoundOff * std::fabs(was + value))
              << "row " << t << ", output " << n << ", added";
        }
        for (int64_t n = c.rows; n < y_stride; ++n) {
          ASSERT_TRUE(std::isnan(got[at(t * y_stride + n)])) << "behind row " << t;
          ASSERT_TRUE(std::isnan(got_added[at(t * y_stride + n)])) << "behind row " << t;
        }
      }
    }
}

TEST_F(ManyRowsDense, ARowKeepsItsBitsWhereverItIs) {
  for (const auto& [rows, K] : {std::pair<int64_t, int64_t>{192, 2880}, {2880, 4096}, {40000, 320}})
    for (const int64_t n : {12, 30, 64, 100, 200}) {
      const Product p              = product(n + 40, rows, K);
      const std::vector<float> one = run(p, 0, n);
      EXPECT_EQ(0, std::memcmp(one.data(), run(p, 0, n).data(), one.size() * 4)) << "repeated";
      const std::vector<float> other = run(p, 7, n);  // the same rows, seven rows earlier in the batch
      EXPECT_EQ(0, std::memcmp(other.data(), one.data() + 7 * rows, at((n - 7) * rows) * 4))
          << rows << " x " << K << ", " << n << " rows";
    }
}

TEST_F(ManyRowsDense, InOneOrderOfSumsARowHasTheSameBitsInAnyNumberOfRows) {
  for (const auto& [rows, K] :
       {std::pair<int64_t, int64_t>{5120, 2880}, {2880, 4096}, {40000, 320}, {64, 64}, {100, 128}}) {
    const Product p              = product(300, rows, K);
    const std::vector<float> all = run(p, 0, 300, SumOrder::one);
    for (const int64_t n : {1, 8, 9, 17, 33, 65, 129}) {
      const int64_t first              = (300 - n) / 2;
      const std::vector<float> of_some = run(p, first, n, SumOrder::one);
      EXPECT_EQ(0, std::memcmp(of_some.data(), all.data() + first * rows, at(n * rows) * 4))
          << rows << " x " << K << ", " << n << " rows";
    }
    const std::vector<float> otherwise = run(p, 0, 300);
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_NEAR(all[i], otherwise[i], sum_error(K, static_cast<double>(K)));
  }
}

// So many rows of x that work tiles have 192 of them, on a GPU of 132 multiprocessors.
TEST_F(ManyRowsDense, TilesOf192Rows) {
  struct Case {
    int64_t rows, K, T;
  };
  for (const Case& c : {Case{13000, 64, 570}, {13000, 64, 576}, {5120, 192, 768}, {5120, 640, 763}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.K << ", T " << c.T);
    const Product p            = product(c.T, c.rows, c.K);
    const std::vector<float> w = floats(p.w), x = floats(p.x), bias = floats(p.bias);
    const std::vector<float> got = run(p, 0, c.T);
    for (int64_t t = 0; t < c.T; t += t < 16 || t > c.T - 16 ? 1 : 7)
      for (int64_t n = 0; n < c.rows; ++n) {
        const Sum sum      = dot(&x[at(t * c.K)], &w[at(n * c.K)], c.K);
        const double value = sum.value + bias[at(n)];
        ASSERT_NEAR(got[at(t * c.rows + n)], value, sum_error(c.K, sum.size) + kRoundOff * std::fabs(value))
            << "row " << t << ", output " << n;
      }
    const std::vector<float> in_order = run(p, 0, c.T, SumOrder::one);
    for (const int64_t n : {1, 17, 65, 129}) {
      const int64_t first              = c.T - n;
      const std::vector<float> of_some = run(p, first, n, SumOrder::one);
      EXPECT_EQ(0, std::memcmp(of_some.data(), in_order.data() + first * c.rows, at(n * c.rows) * 4)) << n;
    }
  }
}

TEST_F(ManyRowsDense, WithoutABiasAndWithoutRows) {
  const Product p                    = product(70, 100, 192);
  PackedMatrix w                     = p.matrix();
  const std::vector<float> with_bias = run(p, 0, 70);
  w.bias                             = nullptr;
  const GuardedDeviceBuffer<float> y(70 * 100);
  linear_gemm(p.x_view(0, 0), w, y.view({0, 100}), device->stream());
  const std::vector<float> none = y.read();
  EXPECT_TRUE(std::all_of(none.begin(), none.end(), [](float v) { return std::isnan(v); }));
  linear_gemm(p.x_view(0, 70), w, y.view({70, 100}), device->stream());
  const std::vector<float> without = y.read();
  for (size_t i = 0; i < without.size(); ++i)
    ASSERT_NEAR(without[i], with_bias[i] - static_cast<float>(p.bias[i % 100]),
                4 * kRoundOff * (std::fabs(with_bias[i]) + 4));
}

TEST_F(ManyRowsDense, BrokenContractsAreNamed) {
  const Product p = product(20, 100, 128);
  const auto w    = p.matrix();
  const GuardedDeviceBuffer<float> y(4000);
  const auto call = [&](View<const bf16, 2> x, View<float, 2> to) {
    linear_gemm(x, w, to, device->stream());
  };
  const View<float, 2> to(y.data(), {20, 100});
  EXPECT_THROW(call({p.x_there.data(), {20, 64}}, to), ContractError);
  EXPECT_THROW(call({p.x_there.data(), {20, 128}, {132, 1}}, to), ContractError);
  EXPECT_THROW(call({p.x_there.data() + 1, {20, 128}}, to), ContractError);
  EXPECT_THROW(call(p.x_view(0, 20), {y.data(), {19, 100}}), ContractError);
  EXPECT_THROW(call(p.x_view(0, 20), {y.data(), {20, 200}}), ContractError);
}

// ---- experts ----

// Matrices [E, out, in] of random codes, as numbers and packed, with biases. Their scales give sums around 4,
// some beyond the limit of 7.
struct Matrices {
  PackedExperts packed;
  std::vector<float> numbers;
  std::vector<bf16> bias;
  GuardedDeviceBuffer<uint8_t> tiles, scales;
  GuardedDeviceBuffer<float> biases;

  Matrices(int64_t E, int64_t out, int64_t in, RowOrder order, std::mt19937& random)
      : packed{.experts = E, .rows = packed_rows(order, out, 0), .depth = padded(in)},
        numbers(at(E * out * in)),
        bias(normal(E * out, random)),
        tiles(E * packed.tiles_of_one() * PackedExperts::kTileBytes),
        scales(E * packed.tiles_of_one() * PackedExperts::kScaleBytes),
        biases(E * packed.rows) {
    const int64_t groups = (in + 31) / 32;
    const int scale =
        127 + static_cast<int>(std::lround(std::log2(4 / std::sqrt(static_cast<double>(in)) / 2.9)));
    const int exponent = output_exponent(scale + 1);
    std::vector<uint8_t> blocks(at(E * out * groups * 16)), codes;
    for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random());
    for (int64_t i = 0; i < E * out * groups; ++i)
      codes.push_back(static_cast<uint8_t>(scale - 1 + static_cast<int>(random() % 3)));
    decode_mxfp4(blocks, codes, numbers);

    packed.output_scale    = std::ldexp(1.0f, exponent);
    packed.tiles           = tiles.data();
    packed.scales          = scales.data();
    packed.bias            = biases.data();
    const StreamRef stream = find_device({0})->stream();
    const GuardedDeviceBuffer blocks_there(blocks), codes_there(codes);
    const GuardedDeviceBuffer bias_there(bias);
    pack_experts(blocks_there.view({E, out, groups, 16}), codes_there.view({E, out, groups}), order, exponent,
                 tiles.data(), scales.data(), stream);
    pack_bias(bias_there.view({E, out}), order, 0, packed.rows, biases.data(), stream);
    find_device({0})->synchronize();
  }
};

// A layer, and tokens with their experts.
struct Layer {
  int64_t T, H, I, E, top_k;
  Matrices up, down;
  std::vector<bf16> x;
  std::vector<int32_t> experts;
  std::vector<float> weights;
  float limit = 7, alpha = 1.702f;

  Layer(int64_t T_, int64_t H_, int64_t I_, int64_t E_, int64_t top_k_, std::mt19937& random)
      : T(T_),
        H(H_),
        I(I_),
        E(E_),
        top_k(top_k_),
        up(E, 2 * I, H, RowOrder::gate_pairs, random),
        down(E, H, I, RowOrder::plain, random),
        x(normal(T * H, random)) {
    std::vector<int32_t> all(at(E));
    for (size_t e = 0; e < all.size(); ++e) all[e] = static_cast<int32_t>(e);
    for (int64_t t = 0; t < T; ++t) {
      std::shuffle(all.begin(), all.end(), random);
      experts.insert(experts.end(), all.begin(), all.begin() + top_k);
    }
    for (const bf16 v : normal(T * top_k, random)) weights.push_back(static_cast<float>(v));
  }
};

class ManyRowsExperts : public ManyRows {
 protected:
  Layer layer(int64_t T, int64_t H, int64_t I, int64_t E, int64_t top_k) {
    return {T, H, I, E, top_k, random};
  }

  struct Results {
    std::vector<int32_t> offsets, sorted_ids;
    std::vector<bf16> a;                // [T top_k, padded I], sorted
    std::vector<float> expert_outputs;  // [T top_k, H]
  };
  Results run(const Layer& l) const { return run(l, l.T, l.x, l.experts, l.weights); }
  Results run(const Layer& l, int64_t T, const std::vector<bf16>& x_of,
              const std::vector<int32_t>& experts_of, const std::vector<float>& weights_of) const {
    const int64_t rows = T * l.top_k, units = l.up.packed.rows / 2;
    const GuardedDeviceBuffer experts(experts_of);
    const GuardedDeviceBuffer weights(weights_of);
    const GuardedDeviceBuffer x(x_of);
    const GuardedDeviceBuffer<int32_t> offsets(l.E + 1), sorted_ids(rows);
    const GuardedDeviceBuffer<bf16> sorted(rows * l.H), a(rows * units);
    const GuardedDeviceBuffer<float> expert_outputs(rows * l.H);
    const View<int32_t, 1> offsets_view = offsets.view({l.E + 1}), ids = sorted_ids.view({rows});
    const ExpertRows expert_rows{offsets_view, ids};
    sort_by_expert(experts.view({T, l.top_k}), offsets_view, ids, device->stream());
    gather_rows(x.view({T, l.H}), expert_rows, l.top_k, sorted.view({rows, l.H}), device->stream());
    experts_up_grouped_gemm(sorted.view({rows, l.H}), expert_rows, l.up.packed, l.limit, l.alpha,
                            a.view({rows, units}), device->stream());
    experts_down_grouped_gemm(a.view({rows, units}), expert_rows, weights.view({T, l.top_k}), l.down.packed,
                              expert_outputs.view({rows, l.H}), device->stream());
    return {offsets.read(), sorted_ids.read(), a.read(), expert_outputs.read()};
  }

  // Checks the first layer for x, and the second for the first layer's result.
  void expect_right(const Layer& l) const {
    const Results got          = run(l);
    const int64_t units        = l.up.packed.rows / 2;
    const std::vector<float> x = floats(l.x), a = floats(got.a), bias1 = floats(l.up.bias),
                             bias2 = floats(l.down.bias);
    std::vector<bool> written(at(l.T * l.top_k));
    for (int64_t e = 0; e < l.E; ++e)
      for (int64_t i = got.offsets[at(e)]; i < got.offsets[at(e + 1)]; ++i) {
        const int64_t s = got.sorted_ids[at(i)];
        written[at(s)]  = true;
        const auto unit = [&](int64_t n) {
          const Sum sum = dot(&x[at(s / l.top_k * l.H)], &l.up.numbers[at((e * 2 * l.I + n) * l.H)], l.H);
          const double value = sum.value + bias1[at(e * 2 * l.I + n)];
          return Sum{value, sum_error(l.H, sum.size) + kRoundOff * std::fabs(value)};  // size: the error
        };
        for (int64_t u = 0; u < l.I; ++u) {
          const Sum gate = unit(2 * u), up = unit(2 * u + 1);
          const double g       = std::min<double>(gate.value, l.limit);
          const double n       = std::clamp<double>(up.value, -l.limit, l.limit) + 1;
          const double sigmoid = g / (1 + std::exp(-l.alpha * g)), value = sigmoid * n;
          // |d(g sigmoid(alpha g)) / dg| <= 1.1; __expf errs by 2 + |its argument| units, and is divided by.
          const double error = 1.1 * std::fabs(n) * gate.size + std::fabs(sigmoid) * up.size +
                               kRoundOff * (16 + 4 * std::fabs(l.alpha * g)) * std::fabs(value);
          ASSERT_NEAR(a[at(i * units + u)], value,
                      error * (1 + kRoundOffBf16) + kRoundOffBf16 * std::fabs(value) + 0x1p-133)
              << "sorted row " << i << " of expert " << e << ", unit " << u;
        }
        for (int64_t u = l.I; u < units; ++u) ASSERT_EQ(a[at(i * units + u)], 0) << "padding";
        const double weight = l.weights[at(s)];
        for (int64_t h = 0; h < l.H; ++h) {
          const Sum sum      = dot(&a[at(i * units)], &l.down.numbers[at((e * l.H + h) * l.I)], l.I);
          const double value = sum.value + bias2[at(e * l.H + h)];
          ASSERT_NEAR(got.expert_outputs[at(s * l.H + h)], weight * value,
                      std::fabs(weight) * (sum_error(l.I, sum.size) + 3 * kRoundOff * std::fabs(value)))
              << "slot " << s << ", output " << h;
        }
      }
    for (int64_t s = 0; s < l.T * l.top_k; ++s) {
      if (written[at(s)]) continue;
      for (int64_t h = 0; h < l.H; ++h)
        ASSERT_TRUE(std::isnan(got.expert_outputs[at(s * l.H + h)])) << "slot " << s;
    }
    EXPECT_EQ(std::count(written.begin(), written.end(), true), got.offsets.back());
  }
};

TEST_F(ManyRowsExperts, AgreeWithSumsInDouble) {
  for (const int64_t T : {9, 16, 17, 63, 64, 65, 127, 129, 300}) {
    SCOPED_TRACE(testing::Message() << T << " tokens");
    expect_right(layer(T, 64, 64, 8, 4));
    expect_right(layer(T, 96, 160, 5, 3));
  }
  expect_right(layer(300, 128, 96, 32, 4));
  expect_right(layer(40, 64, 64, 128, 4));
}

TEST_F(ManyRowsExperts, AtTheModelsDepth) {
  expect_right(layer(9, 2880, 96, 8, 2));
  expect_right(layer(9, 192, 2880, 8, 2));
  expect_right(layer(33, 2880, 160, 2, 2));
  expect_right(layer(70, 192, 2880, 2, 1));
}

TEST_F(ManyRowsExperts, OneTakesAllAndOthersNothing) {
  for (const int64_t T : {20, 150, 700}) {
    Layer l = layer(T, 64, 96, 8, 1);
    std::fill(l.experts.begin(), l.experts.end(), 5);
    expect_right(l);
  }
}

TEST_F(ManyRowsExperts, PaddingIsLeftOut) {
  for (const int64_t T : {20, 150}) {
    Layer l = layer(T, 96, 64, 8, 4);
    for (int64_t t = 0; t < T; ++t)
      if (t % 3 == 1 || t > 17) std::fill_n(l.experts.begin() + t * 4, 4, -1);
    expect_right(l);
    std::fill(l.experts.begin(), l.experts.end(), -1);
    expect_right(l);
  }
}

TEST_F(ManyRowsExperts, ATokenKeepsItsBitsInAnyCompany) {
  for (const int64_t T : {20, 60, 200, 600}) {
    Layer l             = layer(T, 2880, 96, 8, 2);
    const Results alone = run(l);
    const Results again = run(l);
    ASSERT_EQ(0, std::memcmp(alone.expert_outputs.data(), again.expert_outputs.data(),
                             alone.expert_outputs.size() * 4))
        << "repeated";
    // The other tokens get other experts, which moves the first token's sorted rows.
    for (size_t s = 2; s < l.experts.size(); ++s) l.experts[s] = (l.experts[s] + 3) % 8;
    const Results other = run(l);
    ASSERT_EQ(0, std::memcmp(alone.expert_outputs.data(), other.expert_outputs.data(), at(2 * l.H) * 4)) << T;
  }
}

// Work tiles have 16 to 128 rows, depending on the mean rows of an expert.
TEST_F(ManyRowsExperts, ATokenKeepsItsBitsInAnyNumber) {
  Layer l           = layer(600, 2880, 96, 8, 2);
  const Results all = run(l);
  for (const int64_t T : {200, 60, 20, 5, 1}) {
    l.T = T;
    l.x.resize(at(T * l.H));
    l.experts.resize(at(T * l.top_k));
    l.weights.resize(at(T * l.top_k));
    const Results some = run(l);
    EXPECT_EQ(
        0, std::memcmp(some.expert_outputs.data(), all.expert_outputs.data(), some.expert_outputs.size() * 4))
        << T;
  }
}

// Experts with several work tiles, the last of them narrower, and last groups that are fewer; enough tiles
// for each CTA to compute several. Few rows at a time run in
// other shapes of tiles, whose sums are checked above.
TEST_F(ManyRowsExperts, ManyTilesHaveTheBitsOfFewRows) {
  Layer l = layer(550, 2880, 1088, 8, 4);
  for (int64_t t = 0; t < l.T; ++t) {  // the third expert has all tokens
    int32_t* const experts = &l.experts[at(t * 4)];
    if (std::find(experts, experts + 4, 2) == experts + 4) experts[t % 4] = 2;
  }
  const Results all = run(l);
  EXPECT_EQ(all.offsets[3] - all.offsets[2], 550);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Results again = run(l);
    ASSERT_EQ(0, std::memcmp(all.a.data(), again.a.data(), all.a.size() * sizeof(bf16)));
    ASSERT_EQ(0, std::memcmp(all.expert_outputs.data(), again.expert_outputs.data(),
                             all.expert_outputs.size() * 4));
  }
  for (int64_t first = 0; first < l.T; first += 64) {
    const int64_t n = std::min<int64_t>(64, l.T - first);
    const std::vector<bf16> x(l.x.begin() + first * l.H, l.x.begin() + (first + n) * l.H);
    const std::vector<int32_t> experts(l.experts.begin() + first * 4, l.experts.begin() + (first + n) * 4);
    const std::vector<float> weights(l.weights.begin() + first * 4, l.weights.begin() + (first + n) * 4);
    const Results some = run(l, n, x, experts, weights);
    ASSERT_EQ(0, std::memcmp(some.expert_outputs.data(), &all.expert_outputs[at(first * 4 * l.H)],
                             some.expert_outputs.size() * 4))
        << "tokens from " << first << " on";
  }
}

// Every number of columns that a last tile may have.
TEST_F(ManyRowsExperts, LastTilesOfAnyNumberOfRows) {
  for (const int64_t T : {65, 95, 96, 97, 127, 128, 129, 159, 160, 161, 193, 225, 257})
    for (const int64_t H : {512, 576, 640}) {
      SCOPED_TRACE(testing::Message() << T << " tokens, H " << H);
      Layer l = layer(T, H, 160, 2, 1);
      std::fill(l.experts.begin(), l.experts.end(), 1);
      expect_right(l);
    }
}

}  // namespace
}  // namespace fathom::kernels
