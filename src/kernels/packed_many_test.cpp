// Products with many rows: dense ones (kernels/packed_linear.h) and experts (kernels/packed_experts_many.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/device.h"
#include "core/device_buffer.h"
#include "core/expect.h"
#include "core/fp4_blocks.h"
#include "kernels/expert_rows.h"
#include "kernels/packed_experts.h"
#include "kernels/packed_experts_many.h"
#include "kernels/packed_linear.h"

namespace fathom::kernels {
namespace {

constexpr double kRoundOff = 0x1p-24, kRoundOffBf16 = 0x1p-8;
const float kNan         = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kGuard = 256;  // elements behind an array that stay as they are

size_t at(int64_t i) { return static_cast<size_t>(i); }

// What a sum of K products errs by, with `size` the sum of their magnitudes.
double sum_error(int64_t K, double size) { return kRoundOff * 4 * std::sqrt(static_cast<double>(K)) * size; }

class ManyRows : public testing::Test {
 protected:
  void SetUp() override {
    device = cuda_device();
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_cuda_device();
  }

  template <class T>
  DeviceBuffer<T> there(const std::vector<T>& values) const {
    DeviceBuffer<T> memory(*device, static_cast<int64_t>(values.size()));
    if (!values.empty()) device->to_device(memory.data(), values.data(), memory.bytes());
    return memory;
  }
  // NaN, and so is the guard.
  template <class T>
  DeviceBuffer<T> poisoned(int64_t n) const {
    DeviceBuffer<T> memory(*device, n + kGuard);
    device->set_words(memory.data(), memory.bytes(), 0xffffffff);
    return memory;
  }
  // Without the guard, which must be as it was.
  template <class T>
  std::vector<T> read(const DeviceBuffer<T>& memory) const {
    std::vector<T> values(at(memory.size()));
    device->synchronize();
    device->to_host(values.data(), memory.data(), memory.bytes());
    for (int64_t i = memory.size() - kGuard; i < memory.size(); ++i)
      EXPECT_TRUE(std::isnan(static_cast<float>(values[at(i)]))) << "guard";
    values.resize(values.size() - at(kGuard));
    return values;
  }
  std::vector<bf16> normal(int64_t n) {
    std::normal_distribution<float> numbers;
    std::vector<bf16> values;
    for (int64_t i = 0; i < n; ++i) values.emplace_back(numbers(random));
    return values;
  }

  Device* device = nullptr;
  std::mt19937 random{17};
};

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

// Weights [rows, K] packed, and x [T, K] in rows farther apart, with NaN behind them.
struct Product {
  int64_t T, rows, K, stride = K + 8;
  std::vector<bf16> w, bias, x;
  DeviceBuffer<bf16> tiles, x_there;
  DeviceBuffer<float> bias_there;

  PackedMatrix matrix(RowOrder order, int64_t head_dim) const {
    return {.tiles = tiles.data(),
            .bias  = bias_there.data(),
            .rows  = packed_rows(order, rows, head_dim),
            .depth = K};
  }
  View<const bf16, 2> x_view(int64_t first, int64_t n) const {
    return {x_there.data() + first * stride, {n, K}, {stride, 1}};
  }
};

class ManyRowsDense : public ManyRows {
 protected:
  Product product(int64_t T, int64_t rows, int64_t K, RowOrder order = RowOrder::plain,
                  int64_t head_dim = 0) {
    Product p{.T = T, .rows = rows, .K = K, .w = normal(rows * K), .bias = normal(rows), .x = normal(T * K)};
    std::vector<bf16> apart(at(T * p.stride), bf16(kNan));
    for (int64_t t = 0; t < T; ++t) std::copy_n(p.x.begin() + t * K, K, apart.begin() + t * p.stride);
    p.x_there        = there(apart);
    const int64_t n  = packed_rows(order, rows, head_dim);
    const auto plain = there(p.w), plain_bias = there(p.bias);
    p.tiles      = DeviceBuffer<bf16>(*device, n * K);
    p.bias_there = DeviceBuffer<float>(*device, n);
    pack_matrix(plain.as({rows, K}), order, head_dim, 0, p.tiles.data(), device->stream());
    pack_bias(plain_bias.as({int64_t{1}, rows}), order, head_dim, n, p.bias_there.data(), device->stream());
    device->synchronize();
    return p;
  }

  std::vector<float> run(const Product& p, int64_t first, int64_t n) const {
    const auto y = poisoned<float>(n * p.rows);
    project_many(p.x_view(first, n), p.matrix(RowOrder::plain, 0), y.as({n, p.rows}), device->stream());
    return read(y);
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
      std::vector<float> before(at(T * y_stride + kGuard), kNan);
      for (int64_t t = 0; t < T; ++t)
        for (int64_t n = 0; n < c.rows; ++n) before[at(t * y_stride + n)] = static_cast<float>(t - n % 7);
      const auto y = poisoned<float>(T * y_stride), added = there(before);
      project_many(p.x_view(0, T), p.matrix(RowOrder::plain, 0), {y.data(), {T, c.rows}, {y_stride, 1}},
                   device->stream());
      project_add_many(p.x_view(0, T), p.matrix(RowOrder::plain, 0),
                       {added.data(), {T, c.rows}, {y_stride, 1}}, device->stream());
      const std::vector<float> got = read(y), got_added = read(added);
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
      const std::vector<float> other = run(p, 7, n);  // the same rows seven further up
      EXPECT_EQ(0, std::memcmp(other.data(), one.data() + 7 * rows, at((n - 7) * rows) * 4))
          << rows << " x " << K << ", " << n << " rows";
    }
}

TEST_F(ManyRowsDense, HeadsAreTurnedAndStored) {
  struct Case {
    int64_t K, query_heads, kv_heads, head_dim;
  };
  for (const Case& c : {Case{256, 8, 2, 32}, {128, 1, 1, 64}, {64, 3, 2, 6}})
    for (const int64_t T : {9, 33, 65, 129, 300}) {
      SCOPED_TRACE(testing::Message()
                   << c.query_heads << " + 2 x " << c.kv_heads << " heads of " << c.head_dim << ", T " << T);
      const int64_t heads = c.query_heads + 2 * c.kv_heads, half = c.head_dim / 2, pages = T / 64 + 2;
      const Product p            = product(T, heads * c.head_dim, c.K, RowOrder::rotary_pairs, c.head_dim);
      const std::vector<float> w = floats(p.w), x = floats(p.x), bias = floats(p.bias);
      std::vector<float> turns;
      for (int64_t t = 0; t < T; ++t)
        for (int64_t i = 0; i < 64; ++i) {
          const double angle = static_cast<double>(t + 1) * 0.7 * static_cast<double>(i % 32 + 1);
          turns.push_back(static_cast<float>(1.3 * (i < 32 ? std::cos(angle) : std::sin(angle))));
        }
      std::vector<int32_t> slots;  // scattered, every fifth row is padding
      for (int64_t t = 0; t < T; ++t)
        slots.push_back(t % 5 == 2 ? -1 : static_cast<int32_t>(t * 37 % (pages * 64)));
      std::vector<int32_t> sorted = slots;
      std::sort(sorted.begin(), sorted.end());
      sorted.erase(sorted.begin(), std::upper_bound(sorted.begin(), sorted.end(), -1));
      ASSERT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end()) << "a place for each";

      const auto turns_there = there(turns);
      const auto slots_there = there(slots);
      const auto q           = poisoned<bf16>(T * c.query_heads * 64);
      const auto cache       = poisoned<bf16>(pages * c.kv_heads * 2 * KvTiles::kElements);
      project_heads_many(p.x_view(0, T), p.matrix(RowOrder::rotary_pairs, c.head_dim),
                         {.turns = turns_there.as({T, int64_t{64}}),
                          .slots = slots_there.view(),
                          .q     = q.as({T, c.query_heads, int64_t{64}}),
                          .kv    = {.tiles = cache.data(), .pages = pages, .heads = c.kv_heads}},
                         device->stream());
      const std::vector<bf16> got_q = read(q), got_cache = read(cache);
      std::vector<bool> written(got_cache.size());
      const auto feature = [&](int64_t t, int64_t row) {
        const Sum sum      = dot(&x[at(t * c.K)], &w[at(row * c.K)], c.K);
        const double value = sum.value + bias[at(row)];
        return Sum{value, sum_error(c.K, sum.size) + kRoundOff * std::fabs(value)};  // size: the error
      };
      for (int64_t t = 0; t < T; ++t)
        for (int64_t head = 0; head < heads; ++head)
          for (int64_t i = 0; i < 32; ++i) {
            Sum a{0, 0}, b{0, 0};
            if (i < half) a = feature(t, head * c.head_dim + i), b = feature(t, head * c.head_dim + half + i);
            Sum to[2] = {a, b};
            if (head < c.query_heads + c.kv_heads) {
              const double cosine = turns[at(t * 64 + i)], sine = turns[at(t * 64 + 32 + i)];
              const double error =
                  1.3 * (a.size + b.size + 3 * kRoundOff * (std::fabs(a.value) + std::fabs(b.value)));
              to[0] = {a.value * cosine - b.value * sine, error};
              to[1] = {b.value * cosine + a.value * sine, error};
            }
            for (int64_t part = 0; part < 2; ++part) {
              const int64_t d = part * 32 + i;
              bf16 got;
              if (head < c.query_heads) {
                got = got_q[at((t * c.query_heads + head) * 64 + d)];
              } else {
                if (slots[at(t)] < 0) continue;
                const int64_t slot = slots[at(t)], values = head >= c.query_heads + c.kv_heads;
                const int64_t kv_head = head - c.query_heads - values * c.kv_heads;
                // kv_tiles.h: [pages][heads][keys, values][position][dimension, in swizzled pieces of 8]
                const int64_t place =
                    (((slot / 64 * c.kv_heads + kv_head) * 2 + values) * 64 + slot % 64) * 64 +
                    ((d / 8) ^ (slot % 8)) * 8 + d % 8;
                got                = got_cache[at(place)];
                written[at(place)] = true;
              }
              ASSERT_NEAR(static_cast<float>(got), to[part].value,
                          to[part].size * (1 + kRoundOffBf16) + kRoundOffBf16 * std::fabs(to[part].value))
                  << "row " << t << ", head " << head << ", dimension " << d;
            }
          }
      for (size_t i = 0; i < written.size(); ++i)
        if (!written[i]) {
          ASSERT_TRUE(std::isnan(static_cast<float>(got_cache[i]))) << "cache at " << i;
        }
    }
}

TEST_F(ManyRowsDense, WithoutABiasAndWithoutRows) {
  const Product p                    = product(70, 100, 192);
  PackedMatrix w                     = p.matrix(RowOrder::plain, 0);
  const std::vector<float> with_bias = run(p, 0, 70);
  w.bias                             = nullptr;
  const auto y                       = poisoned<float>(70 * 100);
  project_many(p.x_view(0, 0), w, y.as({int64_t{0}, int64_t{100}}), device->stream());
  const auto none = read(y);
  EXPECT_TRUE(std::all_of(none.begin(), none.end(), [](float v) { return std::isnan(v); }));
  project_many(p.x_view(0, 70), w, y.as({int64_t{70}, int64_t{100}}), device->stream());
  const auto without = read(y);
  for (size_t i = 0; i < without.size(); ++i)
    ASSERT_NEAR(without[i], with_bias[i] - static_cast<float>(p.bias[i % 100]),
                4 * kRoundOff * (std::fabs(with_bias[i]) + 4));
}

TEST_F(ManyRowsDense, BrokenContractsAreNamed) {
  const Product p = product(20, 100, 128);
  const auto y    = poisoned<float>(4000);
  const auto w    = p.matrix(RowOrder::plain, 0);
  const auto call = [&](View<const bf16, 2> x, View<float, 2> to) {
    project_many(x, w, to, device->stream());
  };
  const View<float, 2> to(y.data(), {20, 100});
  EXPECT_THROW(call({p.x_there.data(), {20, 64}}, to), ContractError);
  EXPECT_THROW(call({p.x_there.data(), {20, 128}, {132, 1}}, to), ContractError);
  EXPECT_THROW(call({p.x_there.data() + 1, {20, 128}}, to), ContractError);
  EXPECT_THROW(call(p.x_view(0, 20), {y.data(), {19, 100}}), ContractError);
  EXPECT_THROW(call(p.x_view(0, 20), {y.data(), {20, 200}}), ContractError);
}

// ---- experts ----

// A layer in the checkpoint's order and packed, and tokens with their experts.
struct Layer {
  int64_t T, H, I, E, top_k;
  std::vector<float> w1, w2;  // [E, 2 I, H] and [E, H, I], as numbers
  std::vector<bf16> bias1, bias2, x;
  std::vector<int32_t> experts;
  std::vector<float> weights;
  float limit = 7, alpha = 1.702f;
  DeviceBuffer<uint8_t> tiles[2], scales[2];
  DeviceBuffer<float> biases[2];
  PackedExperts packed[2];
};

class ManyRowsExperts : public ManyRows {
 protected:
  // Scales so that sums come out around 4, some beyond the limit of 7.
  void pack(Layer& layer, int which, int64_t out, int64_t in, std::vector<float>& numbers,
            const std::vector<bf16>& bias) {
    const int64_t groups = (in + 31) / 32;
    const int scale =
        127 + static_cast<int>(std::lround(std::log2(4 / std::sqrt(static_cast<double>(in)) / 2.9)));
    std::vector<uint8_t> blocks(at(layer.E * out * groups * 16)), scales;
    for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random());
    for (int64_t i = 0; i < layer.E * out * groups; ++i)
      scales.push_back(static_cast<uint8_t>(scale - 1 + static_cast<int>(random() % 3)));
    numbers.resize(at(layer.E * out * in));
    decode_mxfp4(blocks, scales, numbers);

    const RowOrder order    = which == 0 ? RowOrder::gate_pairs : RowOrder::plain;
    const int exponent      = exponent_of(scale + 1);
    PackedExperts& w        = layer.packed[which];
    w                       = {.experts = layer.E, .rows = packed_rows(order, out, 0), .depth = padded(in)};
    w.times                 = std::ldexp(1.0f, exponent);
    const auto blocks_there = there(blocks), scales_there = there(scales);
    const auto bias_there = there(bias);
    layer.tiles[which] =
        DeviceBuffer<uint8_t>(*device, layer.E * w.tiles_of_one() * PackedExperts::kTileBytes);
    layer.scales[which] =
        DeviceBuffer<uint8_t>(*device, layer.E * w.tiles_of_one() * PackedExperts::kScaleBytes);
    layer.biases[which] = DeviceBuffer<float>(*device, layer.E * w.rows);
    w.tiles             = layer.tiles[which].data();
    w.scales            = layer.scales[which].data();
    w.bias              = layer.biases[which].data();
    pack_experts(blocks_there.as({layer.E, out, groups, int64_t{16}}),
                 scales_there.as({layer.E, out, groups}), order, exponent, layer.tiles[which].data(),
                 layer.scales[which].data(), device->stream());
    pack_bias(bias_there.as({layer.E, out}), order, 0, w.rows, layer.biases[which].data(), device->stream());
    device->synchronize();
  }

  Layer layer(int64_t T, int64_t H, int64_t I, int64_t E, int64_t top_k) {
    Layer l{.T = T, .H = H, .I = I, .E = E, .top_k = top_k};
    l.bias1 = normal(E * 2 * I);
    l.bias2 = normal(E * H);
    l.x     = normal(T * H);
    pack(l, 0, 2 * I, H, l.w1, l.bias1);
    pack(l, 1, H, I, l.w2, l.bias2);
    std::vector<int32_t> all(at(E));
    for (size_t e = 0; e < all.size(); ++e) all[e] = static_cast<int32_t>(e);
    for (int64_t t = 0; t < T; ++t) {
      std::shuffle(all.begin(), all.end(), random);
      l.experts.insert(l.experts.end(), all.begin(), all.begin() + top_k);
    }
    for (const bf16 v : normal(T * top_k)) l.weights.push_back(static_cast<float>(v));
    return l;
  }

  struct Results {
    std::vector<int32_t> first, slot;
    std::vector<bf16> a;       // [T top_k, padded I], sorted
    std::vector<float> slots;  // [T top_k, H]
  };
  Results run(const Layer& l) const {
    const int64_t rows = l.T * l.top_k, units = l.packed[0].rows / 2;
    const auto experts = there(l.experts);
    const auto weights = there(l.weights);
    const auto x       = there(l.x);
    DeviceBuffer<int32_t> first(*device, l.E + 1), slot(*device, rows);
    const auto sorted = poisoned<bf16>(rows * l.H), a = poisoned<bf16>(rows * units);
    const auto slots = poisoned<float>(rows * l.H);
    const ExpertRows expert_rows{first.view(), slot.view()};
    sort_by_expert(experts.as({l.T, l.top_k}), first.view(), slot.view(), device->stream());
    gather_rows(x.as({l.T, l.H}), expert_rows, l.top_k, sorted.as({rows, l.H}), device->stream());
    experts_up_many(sorted.as({rows, l.H}), expert_rows, l.packed[0], l.limit, l.alpha, a.as({rows, units}),
                    device->stream());
    experts_down_many(a.as({rows, units}), expert_rows, weights.as({l.T, l.top_k}), l.packed[1],
                      slots.as({rows, l.H}), device->stream());
    Results got{.a = read(a), .slots = read(slots)};
    got.first.resize(at(l.E + 1));
    got.slot.resize(at(rows));
    device->to_host(got.first.data(), first.data(), first.bytes());
    device->to_host(got.slot.data(), slot.data(), slot.bytes());
    return got;
  }

  // The first layer against x, the second against what the first gave.
  void expect_right(const Layer& l) const {
    const Results got          = run(l);
    const int64_t units        = l.packed[0].rows / 2;
    const std::vector<float> x = floats(l.x), a = floats(got.a), bias1 = floats(l.bias1),
                             bias2 = floats(l.bias2);
    std::vector<bool> written(at(l.T * l.top_k));
    for (int64_t e = 0; e < l.E; ++e)
      for (int64_t i = got.first[at(e)]; i < got.first[at(e + 1)]; ++i) {
        const int64_t s = got.slot[at(i)];
        written[at(s)]  = true;
        const auto unit = [&](int64_t n) {
          const Sum sum      = dot(&x[at(s / l.top_k * l.H)], &l.w1[at((e * 2 * l.I + n) * l.H)], l.H);
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
          const Sum sum      = dot(&a[at(i * units)], &l.w2[at((e * l.H + h) * l.I)], l.I);
          const double value = sum.value + bias2[at(e * l.H + h)];
          ASSERT_NEAR(got.slots[at(s * l.H + h)], weight * value,
                      std::fabs(weight) * (sum_error(l.I, sum.size) + 3 * kRoundOff * std::fabs(value)))
              << "slot " << s << ", output " << h;
        }
      }
    for (int64_t s = 0; s < l.T * l.top_k; ++s) {
      if (written[at(s)]) continue;
      for (int64_t h = 0; h < l.H; ++h) ASSERT_TRUE(std::isnan(got.slots[at(s * l.H + h)])) << "slot " << s;
    }
    EXPECT_EQ(std::count(written.begin(), written.end(), true), got.first.back());
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
    ASSERT_EQ(0, std::memcmp(alone.slots.data(), again.slots.data(), alone.slots.size() * 4)) << "repeated";
    // All others get other experts, and so the first token's rows another place.
    for (size_t s = 2; s < l.experts.size(); ++s) l.experts[s] = (l.experts[s] + 3) % 8;
    const Results other = run(l);
    ASSERT_EQ(0, std::memcmp(alone.slots.data(), other.slots.data(), at(2 * l.H) * 4)) << T;
  }
}

}  // namespace
}  // namespace fathom::kernels
