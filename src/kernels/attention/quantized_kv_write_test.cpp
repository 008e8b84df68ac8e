// qkv_rope must leave in a quantised cache, byte for byte, what the host's quantisation gives for the same
// numbers (which paged_kv_cache_test.cpp and fp4_kv_pages_test.cpp check). Products are of small integers, so
// that fp32 sums are exact in any order and the quantised numbers are known.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "cuda/device.h"
#include "kernels/attention/kv_layer.h"
#include "kernels/gemm/linear_gpu.h"
#include "kernels/gemm/pack_weights.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

constexpr uint8_t kUntouched  = 0xcd;
constexpr KvFormat kFormats[] = {KvFormat::fp8, KvFormat::k8v4, KvFormat::nvfp4};

size_t at(int64_t i) { return static_cast<size_t>(i); }

std::vector<bf16> integers(int64_t n, std::mt19937& random) {
  std::vector<bf16> values;
  for (int64_t i = 0; i < n; ++i) values.emplace_back(static_cast<float>(static_cast<int>(random() % 7) - 3));
  return values;
}

struct Case {
  int64_t T, K, query_heads, kv_heads, head_dim;
};

using Project = void (*)(View<const bf16, 2>, const PackedMatrix&, const QkvRopeOutput&, StreamRef);

void check(const Case& c, KvFormat format, Project project) {
  SCOPED_TRACE(testing::Message() << c.T << " rows, K " << c.K << ", " << c.query_heads << " + 2 x "
                                  << c.kv_heads << " heads of " << c.head_dim << ", format "
                                  << static_cast<int>(format));
  std::mt19937 random(static_cast<uint32_t>(c.T + c.K));
  const int64_t heads = c.query_heads + 2 * c.kv_heads, rows = heads * c.head_dim, half = c.head_dim / 2;
  const int64_t packed = heads * kHeadDim, pages = (c.T * 3 + 63) / 64 + 1;
  const std::vector<bf16> x = integers(c.T * c.K, random);
  std::vector<bf16> w = integers(rows * c.K, random), bias = integers(rows, random);
  // Groups of large and of small numbers, and one of zeros.
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t group = r % half / 8, head = r / c.head_dim;
    const float factor = group == 1 && head % 3 == 0 ? 0 : std::ldexp(1.0f, static_cast<int>(-3 * group));
    bias[at(r)]        = bf16(static_cast<float>(bias[at(r)]) * factor);
    for (int64_t k = 0; k < c.K; ++k)
      w[at(r * c.K + k)] = bf16(static_cast<float>(w[at(r * c.K + k)]) * factor);
  }
  std::vector<float> rope_table;  // quarters
  for (int64_t i = 0; i < c.T * 64; ++i) rope_table.push_back(static_cast<float>(random() % 9) / 4 - 1);
  std::vector<int32_t> slot_mapping;  // scattered; every fifth row is padding
  for (int64_t t = 0; t < c.T; ++t)
    slot_mapping.push_back(t % 5 == 2 ? -1 : static_cast<int32_t>(t * 3 + t % 2));

  const GuardedDeviceBuffer x_there(x), w_there(w), bias_there(bias);
  const GuardedDeviceBuffer table_there(rope_table);
  const GuardedDeviceBuffer mapping_there(slot_mapping);
  const GuardedDeviceBuffer<bf16> tiles(packed * c.K), q(c.T * c.query_heads * kHeadDim);
  const GuardedDeviceBuffer<float> packed_bias(packed);
  const GuardedDeviceBuffer cache(
      std::vector<uint8_t>(at(pages * c.kv_heads * kTile * kv_position_bytes(format)), kUntouched));
  const StreamRef stream = find_device({0})->stream();
  pack_matrix(w_there.view({rows, c.K}), RowOrder::rotary_pairs, c.head_dim, 0, tiles.data(), stream);
  pack_bias(bias_there.view({1, rows}), RowOrder::rotary_pairs, c.head_dim, packed, packed_bias.data(),
            stream);
  project(x_there.view({c.T, c.K}),
          {.tiles = tiles.data(), .bias = packed_bias.data(), .rows = packed, .depth = c.K},
          {.rope_table   = table_there.view({c.T, 64}),
           .slot_mapping = mapping_there.view({c.T}),
           .q            = q.view({c.T, c.query_heads, kHeadDim}),
           .kv           = kv_layer(format, cache.data(), pages, c.kv_heads)},
          stream);
  const std::vector<bf16> got_q  = q.read();
  const std::vector<uint8_t> got = cache.read();
  std::vector<uint8_t> expected(got.size(), kUntouched);
  for (int64_t t = 0; t < c.T; ++t)
    for (int64_t head = 0; head < heads; ++head) {
      const auto feature = [&](int64_t d) {
        float sum = static_cast<float>(bias[at(head * c.head_dim + d)]);
        for (int64_t k = 0; k < c.K; ++k)
          sum += static_cast<float>(x[at(t * c.K + k)]) *
                 static_cast<float>(w[at((head * c.head_dim + d) * c.K + k)]);
        return sum;
      };
      float numbers[kHeadDim] = {};
      for (int64_t i = 0; i < half; ++i) {
        const float a = feature(i), b = feature(half + i);
        const bool turned  = head < c.query_heads + c.kv_heads;
        const float cosine = turned ? rope_table[at(t * 64 + i)] : 1,
                    sine   = turned ? rope_table[at(t * 64 + 32 + i)] : 0;
        numbers[i]         = a * cosine - b * sine;
        numbers[32 + i]    = b * cosine + a * sine;
      }
      if (head < c.query_heads) {
        for (int64_t d = 0; d < kHeadDim; ++d)
          ASSERT_EQ(static_cast<float>(got_q[at((t * c.query_heads + head) * kHeadDim + d)]),
                    static_cast<float>(bf16(numbers[d])))
              << "row " << t << ", query head " << head << ", dimension " << d;
        continue;
      }
      if (slot_mapping[at(t)] < 0) continue;
      const int64_t value = head >= c.query_heads + c.kv_heads, slot = slot_mapping[at(t)], r = slot % 64;
      const int64_t kv_head = head - c.query_heads - value * c.kv_heads;
      std::visit(
          [&]<class Pages>(const Pages& here) {
            if constexpr (!std::is_same_v<Pages, Bf16KvPages>)
              Pages::put(here.strips(slot / 64, kv_head), r, value != 0, numbers);
          },
          kv_layer(format, expected.data(), pages, c.kv_heads));
    }
  // A code of zero has a sign; products of zeros may have either.
  for (size_t i = 0; i < got.size(); ++i) {
    const int apart         = got[i] ^ expected[i];
    const bool zero_of_fp8  = apart == 0x80 && (got[i] & 0x7f) == 0;
    const bool low_zero     = (apart & 15) == 0 || ((apart & 15) == 8 && (got[i] & 7) == 0);
    const bool high_zero    = (apart & 0xf0) == 0 || ((apart & 0xf0) == 0x80 && (got[i] & 0x70) == 0);
    const bool zeros_of_fp4 = format != KvFormat::fp8 && low_zero && high_zero;
    ASSERT_TRUE(apart == 0 || zero_of_fp8 || zeros_of_fp4)
        << "byte " << i << " is " << int{got[i]} << ", not " << int{expected[i]};
  }
}

class QuantizedHeads : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
};

TEST_F(QuantizedHeads, OfFewRows) {
  for (const KvFormat format : kFormats)
    for (const int64_t T : {1, 2, 5, 8}) {
      check({T, 128, 4, 2, 64}, format, qkv_rope_gemv);   // a CTA has all of K
      check({T, 1088, 8, 2, 32}, format, qkv_rope_gemv);  // a cluster splits K
      check({T, 1024, 2, 1, 64}, format, qkv_rope_gemv);
    }
}

TEST_F(QuantizedHeads, OfManyRows) {
  const Project many = [](View<const bf16, 2> x, const PackedMatrix& w, const QkvRopeOutput& to,
                          StreamRef stream) { qkv_rope_gemm(x, w, to, stream); };
  for (const KvFormat format : kFormats)
    for (const int64_t T : {1, 9, 16, 17, 40, 65, 129, 300}) {
      check({T, 128, 4, 2, 64}, format, many);
      check({T, 320, 8, 2, 32}, format, many);
    }
}

}  // namespace
}  // namespace fathom::kernels
