#include "kernels/gemm/linear_gpu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/expect.h"
#include "cuda/device.h"
#include "kernels/gemm/pack_weights.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

constexpr double kRoundOff = 0x1p-24, kRoundOffBf16 = 0x1p-8;
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<bf16> random_bf16(int64_t n, std::mt19937& random, float size = 1) {
  std::uniform_real_distribution<float> uniform(-size, size);
  std::vector<bf16> values;
  for (int64_t i = 0; i < n; ++i) values.emplace_back(uniform(random));
  return values;
}

size_t at(int64_t i) { return static_cast<size_t>(i); }

// ---- packing, against the words of packed_weights.h ----

int64_t packed_row(RowOrder order, int64_t row, int64_t head_dim) {
  if (order == RowOrder::plain) return row;
  if (order == RowOrder::gate_pairs) return row / 2 / 8 * 16 + row % 2 * 8 + row / 2 % 8;
  const int64_t half = head_dim / 2, i = row % head_dim % half;
  return row / head_dim * 64 + i / 8 * 16 + row % head_dim / half * 8 + i % 8;
}

int64_t packed_column(int64_t column, int64_t head_dim) {
  if (head_dim == 0) return column;
  const int64_t half = head_dim / 2;
  return column / head_dim * 64 + column % head_dim / half * 32 + column % head_dim % half;
}

int64_t packed_at(int64_t p, int64_t c, int64_t depth) {
  const int64_t tile = p / 64 * (depth / 64) + c / 64, warp = p % 64 / 16, step = c % 64 / 16;
  const int64_t lane = p % 8 * 4 + c % 8 / 2, reg = p % 16 / 8 + c % 16 / 8 * 2;
  return (((tile * 4 + warp) * 4 + step) * 32 + lane) * 8 + reg * 2 + c % 2;
}

class Packed : public testing::Test {
 protected:
  void SetUp() override {
    device = find_device({0});
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
  Device* device = nullptr;
  std::mt19937 random{11};
};

TEST_F(Packed, WeightsLieWhereTheLayoutSays) {
  struct Case {
    int64_t rows, columns;
    RowOrder order;
    int64_t row_head_dim, column_head_dim;
  };
  const auto plain = RowOrder::plain, rotary = RowOrder::rotary_pairs, gates = RowOrder::gate_pairs;
  for (const Case& c : {Case{1, 1, plain, 0, 0},
                        {64, 64, plain, 0, 0},
                        {65, 63, plain, 0, 0},
                        {130, 200, plain, 0, 0},
                        {192, 64, rotary, 64, 0},
                        {96, 70, rotary, 32, 0},
                        {48, 5, rotary, 16, 0},
                        {12, 64, rotary, 2, 0},
                        {70, 96, plain, 0, 32},
                        {64, 128, plain, 0, 64},
                        {3, 24, plain, 0, 6},
                        {448, 100, gates, 0, 0},
                        {2, 64, gates, 0, 0},
                        {64, 64, rotary, 32, 32}})
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.columns << " order "
                                      << static_cast<int>(c.order) << (transposed ? ", transposed" : ""));
      const GuardedDeviceBuffer w(random_bf16((c.rows + 1) * (c.columns + 3), random));
      const View<const bf16, 2> view(
          w.data(), {c.rows, c.columns},
          {transposed ? int64_t{1} : c.columns + 3, transposed ? c.rows + 1 : int64_t{1}});
      const int64_t rows  = packed_rows(c.order, c.rows, c.row_head_dim);
      const int64_t depth = packed_depth(c.columns, c.column_head_dim);
      ASSERT_EQ(rows % 64 + depth % 64, 0);
      const GuardedDeviceBuffer<bf16> tiles(rows * depth);
      pack_matrix(view, c.order, c.row_head_dim, c.column_head_dim, tiles.data(), device->stream());

      const std::vector<bf16> source = w.read(), got = tiles.read();
      std::vector<uint16_t> expected(at(rows * depth), 0);
      for (int64_t r = 0; r < c.rows; ++r)
        for (int64_t k = 0; k < c.columns; ++k)
          expected[at(packed_at(packed_row(c.order, r, c.row_head_dim), packed_column(k, c.column_head_dim),
                                depth))] = source[at(&view(r, k) - w.data())].bits;
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(got[i].bits, expected[i]) << "element " << i;
    }
}

TEST_F(Packed, BiasesOfAllExpertsFollowTheirRows) {
  for (const auto& [order, rows, head_dim] : {std::tuple{RowOrder::plain, 70, 0},
                                              {RowOrder::rotary_pairs, 96, 32},
                                              {RowOrder::gate_pairs, 448, 0}}) {
    constexpr int64_t kExperts = 3, kStride = 500;
    const GuardedDeviceBuffer bias(random_bf16(kExperts * kStride, random));
    const int64_t n = packed_rows(order, rows, head_dim);
    const GuardedDeviceBuffer<float> out(kExperts * n);
    pack_bias({bias.data(), {kExperts, rows}, {kStride, 1}}, order, head_dim, n, out.data(),
              device->stream());
    const std::vector<bf16> source = bias.read();
    std::vector<float> expected(at(kExperts * n), 0);
    for (int64_t e = 0; e < kExperts; ++e)
      for (int64_t r = 0; r < rows; ++r)
        expected[at(e * n + packed_row(order, r, head_dim))] =
            static_cast<float>(source[at(e * kStride + r)]);
    EXPECT_EQ(out.read(), expected) << static_cast<int>(order);
  }
}

// ---- products ----

// Packed weights [rows, K]; rows of x have a stride beyond K, with NaN behind the last row.
struct Product {
  int64_t T, rows, K;
  int64_t stride = K + 24;
  std::vector<bf16> x, w, bias;
  GuardedDeviceBuffer<bf16> x_there, tiles;
  GuardedDeviceBuffer<float> bias_there;

  Product(int64_t T_, int64_t rows_, int64_t K_, RowOrder order, int64_t head_dim, std::mt19937& random)
      : T(T_),
        rows(rows_),
        K(K_),
        x(random_bf16(T * stride, random)),
        w(random_bf16(rows * K, random)),
        bias(random_bf16(rows, random)),
        x_there(with_nan_rows()),
        tiles(packed_rows(order, rows, head_dim) * K),
        bias_there(packed_rows(order, rows, head_dim)) {
    const GuardedDeviceBuffer w_there(w), plain_bias(bias);
    const StreamRef stream = find_device({0})->stream();
    pack_matrix(w_there.view({rows, K}), order, head_dim, 0, tiles.data(), stream);
    pack_bias(plain_bias.view({1, rows}), order, head_dim, packed_rows(order, rows, head_dim),
              bias_there.data(), stream);
    find_device({0})->synchronize();
  }

  std::vector<bf16> with_nan_rows() const {
    std::vector<bf16> all = x;
    for (int64_t t = 0; t < T; ++t)
      for (int64_t k = K; k < stride; ++k) all[at(t * stride + k)] = bf16(kNan);
    all.insert(all.end(), at(16 * stride), bf16(kNan));
    return all;
  }
  View<const bf16, 2> x_view(int64_t first, int64_t n) const {
    return {x_there.data() + first * stride, {n, K}, {stride, 1}};
  }
  PackedMatrix matrix(RowOrder order = RowOrder::plain, int64_t head_dim = 0) const {
    return {.tiles = tiles.data(),
            .bias  = bias_there.data(),
            .rows  = packed_rows(order, rows, head_dim),
            .depth = K};
  }

  struct Sum {
    double value, error;
  };
  // Each sum errs by at most 4 sqrt(K) u sum |products|, and the bias is added with one rounding.
  Sum sum(int64_t t, int64_t row) const {
    const double b = static_cast<float>(bias[at(row)]);
    double value = b, size = std::fabs(b);
    for (int64_t k = 0; k < K; ++k) {
      const double product = static_cast<double>(static_cast<float>(x[at(t * stride + k)])) *
                             static_cast<float>(w[at(row * K + k)]);
      value += product;
      size += std::fabs(product);
    }
    return {value, kRoundOff * (4 * std::sqrt(static_cast<double>(K)) * size + std::fabs(value))};
  }
};

TEST_F(Packed, FewRowsAgreeWithSumsInDouble) {
  for (const auto& [rows, K] : {std::pair<int64_t, int64_t>{1, 64},
                                {16, 128},
                                {63, 320},
                                {64, 448},
                                {65, 1024},
                                {197, 2880},
                                {896, 256},
                                {2880, 1088},
                                {300, 4096},
                                {9999, 64},
                                {20000, 1024}})
    for (const int64_t T : {1, 2, 3, 5, 7, 8}) {
      if (rows > 1000 && T % 7 != 1) continue;
      SCOPED_TRACE(testing::Message() << rows << " x " << K << ", T " << T);
      const Product p(T, rows, K, RowOrder::plain, 0, random);
      const int64_t y_stride = rows + 5;
      for (const bool add : {false, true}) {
        std::vector<float> before(at(T * y_stride), kNan);
        if (add)
          for (int64_t t = 0; t < T; ++t)
            for (int64_t n = 0; n < rows; ++n) before[at(t * y_stride + n)] = static_cast<float>(t - n % 7);
        const GuardedDeviceBuffer y(before);
        (add ? linear_add_gemv : linear_gemv)(p.x_view(0, T), p.matrix(),
                                              {y.data(), {T, rows}, {y_stride, 1}}, device->stream());
        const std::vector<float> got = y.read();
        for (int64_t t = 0; t < T; ++t)
          for (int64_t n = 0; n < y_stride; ++n) {
            const size_t i = at(t * y_stride + n);
            if (n >= rows) {
              ASSERT_TRUE(std::isnan(got[i])) << "row " << t << ", behind its end at " << n;
              continue;
            }
            const Product::Sum sum = p.sum(t, n);
            const double was       = add ? before[i] : 0;
            ASSERT_NEAR(got[i], was + sum.value, sum.error + kRoundOff * std::fabs(was + sum.value))
                << "row " << t << ", output " << n << (add ? ", added" : "");
          }
      }
    }
}

TEST_F(Packed, FewRowsWithoutABias) {
  const Product p(3, 100, 192, RowOrder::plain, 0, random);
  PackedMatrix w = p.matrix();
  w.bias         = nullptr;
  const GuardedDeviceBuffer<float> y(300);
  linear_gemv(p.x_view(0, 3), w, y.view({3, 100}), device->stream());
  const std::vector<float> got = y.read();
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t n = 0; n < 100; ++n) {
      const Product::Sum sum = p.sum(t, n);
      ASSERT_NEAR(got[at(t * 100 + n)], sum.value - static_cast<float>(p.bias[at(n)]), 2 * sum.error);
    }
}

TEST_F(Packed, FewRowsAreTheSameBitsInAnyCompany) {
  for (const auto& [rows, K] : {std::pair<int64_t, int64_t>{130, 2880}, {2880, 4096}, {40000, 320}}) {
    const Product p(8, rows, K, RowOrder::plain, 0, random);
    const auto product = [&](int64_t first, int64_t n) {
      const GuardedDeviceBuffer<float> y(n * rows);
      linear_gemv(p.x_view(first, n), p.matrix(), y.view({n, rows}), device->stream());
      return y.read();
    };
    const std::vector<float> all = product(0, 8);
    for (const auto& [first, n] :
         {std::pair<int64_t, int64_t>{0, 8}, {0, 1}, {3, 1}, {7, 1}, {2, 5}, {1, 7}}) {
      const std::vector<float> some = product(first, n);
      EXPECT_EQ(0, std::memcmp(some.data(), all.data() + first * rows, some.size() * sizeof(float)))
          << rows << " x " << K << ": rows " << first << " to " << first + n;
    }
  }
}

// By the GEMV and by the GEMM.
TEST_F(Packed, HeadsAreTurnedAndStored) {
  struct Case {
    int64_t K, query_heads, kv_heads, head_dim;
  };
  for (const Case& c : {Case{256, 8, 2, 32}, {128, 1, 1, 64}, {64, 3, 3, 6}, {2880, 64, 8, 64}})
    for (const int64_t T : {1, 4, 8, 9, 33, 65, 129, 300}) {
      if (c.K == 2880 && T > 9) continue;
      SCOPED_TRACE(testing::Message() << c.query_heads << " + 2 x " << c.kv_heads << " heads of "
                                      << c.head_dim << ", K " << c.K << ", T " << T);
      const int64_t heads = c.query_heads + 2 * c.kv_heads, half = c.head_dim / 2, pages = T / 64 + 2;
      const Product p(T, heads * c.head_dim, c.K, RowOrder::rotary_pairs, c.head_dim, random);

      std::vector<float> rope_table;
      for (int64_t t = 0; t < T; ++t)
        for (int64_t i = 0; i < 64; ++i) {
          const double angle = static_cast<double>(t + 1) * 0.7 * static_cast<double>(i % 32 + 1);
          rope_table.push_back(static_cast<float>(1.3 * (i < 32 ? std::cos(angle) : std::sin(angle))));
        }
      std::vector<int32_t>
          slot_mapping;  // a slot for each row, in different pages; every fifth row is padding
      for (int64_t t = 0; t < T; ++t)
        slot_mapping.push_back(t % 5 == 2 ? -1 : static_cast<int32_t>(t * 37 % (pages * 64)));
      const GuardedDeviceBuffer table_there(rope_table);
      const GuardedDeviceBuffer mapping_there(slot_mapping);
      const GuardedDeviceBuffer<bf16> q(T * c.query_heads * 64),
          cache(pages * c.kv_heads * 2 * Bf16KvPages::kElements);
      qkv_rope(p.x_view(0, T), p.matrix(RowOrder::rotary_pairs, c.head_dim),
               {.rope_table   = table_there.view({T, 64}),
                .slot_mapping = mapping_there.view({T}),
                .q            = q.view({T, c.query_heads, 64}),
                .kv           = Bf16KvPages{.tiles = cache.data(), .pages = pages, .heads = c.kv_heads}},
               device->stream());
      const std::vector<bf16> got_q = q.read(), got_cache = cache.read();
      std::vector<bool> written(got_cache.size());
      for (int64_t t = 0; t < T; ++t)
        for (int64_t head = 0; head < heads; ++head)
          for (int64_t i = 0; i < 32; ++i) {
            Product::Sum a{0, 0}, b{0, 0};
            if (i < half) a = p.sum(t, head * c.head_dim + i), b = p.sum(t, head * c.head_dim + half + i);
            Product::Sum to[2] = {a, b};
            if (head < c.query_heads + c.kv_heads) {
              const double cosine = rope_table[at(t * 64 + i)], sine = rope_table[at(t * 64 + 32 + i)];
              const double error = (a.error + 3 * kRoundOff * std::fabs(a.value) + b.error +
                                    3 * kRoundOff * std::fabs(b.value)) *
                                   1.3;
              to[0] = {a.value * cosine - b.value * sine, error};
              to[1] = {b.value * cosine + a.value * sine, error};
            }
            for (int64_t part = 0; part < 2; ++part) {
              const int64_t d = part * 32 + i;
              bf16 got;
              if (head < c.query_heads) {
                got = got_q[at((t * c.query_heads + head) * 64 + d)];
              } else {
                const int64_t slot = slot_mapping[at(t)], values = head >= c.query_heads + c.kv_heads;
                if (slot < 0) continue;
                const int64_t kv_head = head - c.query_heads - values * c.kv_heads;
                // paged_kv_cache.h: [pages][heads][keys, values][position][dimension, in swizzled pieces of
                // 8]
                const int64_t place =
                    (((slot / 64 * c.kv_heads + kv_head) * 2 + values) * 64 + slot % 64) * 64 +
                    ((d / 8) ^ (slot % 8)) * 8 + d % 8;
                got                = got_cache[at(place)];
                written[at(place)] = true;
              }
              ASSERT_NEAR(static_cast<float>(got), to[part].value,
                          to[part].error * (1 + kRoundOffBf16) + kRoundOffBf16 * std::fabs(to[part].value))
                  << "row " << t << ", head " << head << ", dimension " << d;
            }
          }
      for (size_t i = 0; i < written.size(); ++i)
        if (!written[i]) {
          ASSERT_TRUE(std::isnan(static_cast<float>(got_cache[i]))) << "cache at " << i;
        }
    }
}

// Queries and both cache formats: rotated and quantised by the GEMMs for 16, 32, 64 and 128 rows.
TEST_F(Packed, HeadsInOneOrderAreTheSameBitsInAnyNumberOfRows) {
  constexpr int64_t T = 300, K = 256, query_heads = 8, kv_heads = 2, pages = 5;
  const Product p(T, (query_heads + 2 * kv_heads) * 32, K, RowOrder::rotary_pairs, 32, random);
  std::uniform_real_distribution<float> any(-1.3f, 1.3f);
  std::vector<float> rope_table(at(T * 64));
  for (float& v : rope_table) v = any(random);
  const GuardedDeviceBuffer table_there(rope_table);
  struct Heads {
    std::vector<bf16> q;
    std::vector<uint8_t> cache;
  };
  // For `n` rows from `first` on; `kept` rows from `keep` on go into the cache.
  const auto heads = [&](int64_t first, int64_t n, int64_t keep, int64_t kept, bool fp8) {
    std::vector<int32_t> slot_mapping;
    for (int64_t t = first; t < first + n; ++t)
      slot_mapping.push_back(t >= keep && t < keep + kept ? static_cast<int32_t>(t) : -1);
    const GuardedDeviceBuffer mapping_there(slot_mapping);
    const int64_t page_bytes = kv_heads * (fp8 ? Fp8KvPages::kPageBytes : 4 * Bf16KvPages::kElements);
    const GuardedDeviceBuffer<bf16> q(n * query_heads * 64);
    const GuardedDeviceBuffer cache(std::vector<uint8_t>(at(pages * page_bytes)));
    KvLayer kv = Fp8KvPages{cache.data(), pages, kv_heads};
    if (!fp8) kv = Bf16KvPages{reinterpret_cast<bf16*>(cache.data()), pages, kv_heads};
    qkv_rope(p.x_view(first, n), p.matrix(RowOrder::rotary_pairs, 32),
             {.rope_table   = View<const float, 2>(table_there.data() + first * 64, {n, 64}),
              .slot_mapping = mapping_there.view({n}),
              .q            = q.view({n, query_heads, 64}),
              .kv           = kv},
             device->stream(), SumOrder::one);
    return Heads{q.read(), cache.read()};
  };
  for (const bool fp8 : {false, true})
    for (const int64_t n : {1, 16, 17, 33, 65, 129}) {
      const int64_t first = (T - n) / 2;
      const Heads some = heads(first, n, first, n, fp8), all = heads(0, T, first, n, fp8);
      EXPECT_EQ(0, std::memcmp(some.q.data(), all.q.data() + first * query_heads * 64, some.q.size() * 2))
          << n << " rows";
      EXPECT_TRUE(some.cache == all.cache) << n << " rows, " << (fp8 ? "fp8" : "bf16");
    }
}

TEST_F(Packed, AnyNumberOfRowsFindsItsWay) {
  const Product p(9, 200, 256, RowOrder::plain, 0, random);
  for (const int64_t T : {0, 8, 9}) {
    const GuardedDeviceBuffer<float> y(9 * 200);
    linear(p.x_view(0, T), p.matrix(), y.view({T, 200}), device->stream());
    const std::vector<float> got = y.read();
    for (int64_t t = 0; t < 9; ++t)
      for (int64_t n = 0; n < 200; ++n) {
        const float value = got[at(t * 200 + n)];
        if (t >= T) {
          ASSERT_TRUE(std::isnan(value)) << "T " << T << ", row " << t;
          continue;
        }
        const Product::Sum sum = p.sum(t, n);
        ASSERT_NEAR(value, sum.value, sum.error) << "T " << T << ", row " << t << ", output " << n;
      }
  }
}

TEST_F(Packed, BrokenContractsAreRefused) {
  const Product p(2, 100, 128, RowOrder::plain, 0, random);
  const GuardedDeviceBuffer<float> y(1000);
  const auto call = [&](View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> to) {
    linear_gemv(x, w, to, device->stream());
  };
  const View<float, 2> to(y.data(), {2, 100});
  EXPECT_THROW(call({p.x_there.data(), {2, 64}}, p.matrix(), to), ContractError);
  EXPECT_THROW(call({p.x_there.data(), {9, 128}}, p.matrix(), {y.data(), {9, 100}}), ContractError);
  EXPECT_THROW(call({p.x_there.data(), {2, 128}, {132, 1}}, p.matrix(), to), ContractError);
  EXPECT_THROW(call({p.x_there.data() + 1, {2, 128}}, p.matrix(), to), ContractError);
  EXPECT_THROW(call(p.x_view(0, 2), p.matrix(), {y.data(), {1, 100}}), ContractError);
  EXPECT_THROW(call(p.x_view(0, 2), p.matrix(), {y.data(), {2, 200}}), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
