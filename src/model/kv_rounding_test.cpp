#include "model/kv_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/rng.h"

namespace fathom::model {
namespace {

constexpr int64_t kPositions = 5, kKvHeads = 2, kPagePositions = 4;

struct Stored {
  std::vector<float> keys, values;  // what went in, [T, Hkv, Dh]
  std::vector<float> kept_keys, kept_values;
};

// Five positions on two pages.
Stored stored(const Ops& ops, int64_t size) {
  const int64_t count = kPositions * kKvHeads * size;
  Stored all;
  for (auto* numbers : {&all.keys, &all.values, &all.kept_keys, &all.kept_values})
    numbers->resize(static_cast<size_t>(count));
  fill_uniform(all.keys.data(), count, 1, -3, 3);
  fill_uniform(all.values.data(), count, 2, -0.01, 0.01);
  std::vector<float> cache(static_cast<size_t>(2 * 2 * kPagePositions * kKvHeads * size));
  const kernels::KvPages kv{
      .keys   = View<float, 4>(cache.data(), {2, kPagePositions, kKvHeads, size}),
      .values = View<float, 4>(cache.data() + cache.size() / 2, {2, kPagePositions, kKvHeads, size})};
  const int32_t first_row[] = {0, kPositions}, positions[] = {0, 1, 2, 3, 4}, pages[] = {1, 0};
  ops.kv_store(View<const float, 3>(all.keys.data(), {kPositions, kKvHeads, size}),
               View<const float, 3>(all.values.data(), {kPositions, kKvHeads, size}),
               {.first_row = View<const int32_t, 1>(first_row, {2}),
                .positions = View<const int32_t, 1>(positions, {kPositions}),
                .pages     = View<const int32_t, 2>(pages, {1, 2})},
               kv, {});
  for (int64_t t = 0; t < kPositions; ++t)
    for (int64_t h = 0; h < kKvHeads; ++h)
      for (int64_t d = 0; d < size; ++d) {
        const auto i       = static_cast<size_t>((t * kKvHeads + h) * size + d);
        all.kept_keys[i]   = kv.keys(1 - t / kPagePositions, t % kPagePositions, h, d);
        all.kept_values[i] = kv.values(1 - t / kPagePositions, t % kPagePositions, h, d);
      }
  return all;
}

TEST(KvRounding, ToBf16IsToTheNearestOf8Bits) {
  const Stored all = stored(cpu_ops_rounding_kv(KvFormat::bf16), 32);
  for (size_t i = 0; i < all.keys.size(); ++i) {
    EXPECT_EQ(all.kept_keys[i], static_cast<float>(bf16(all.keys[i])));
    EXPECT_EQ(all.kept_values[i], static_cast<float>(bf16(all.values[i])));
  }
}

// Each number within half a unit of 4 significant bits of its block's largest at worst, 2.3 % of rms as
// paged_kv_cache.h says of normal numbers, and blocks are of 8 numbers in each half of the head.
TEST(KvRounding, ToFp8KeepsFourBitsUnderABlocksScale) {
  for (const int64_t size : {16, 32, 48, 64}) {
    const Stored all = stored(cpu_ops_rounding_kv(KvFormat::fp8), size);
    for (const auto& [in, kept] : {std::pair{&all.keys, &all.kept_keys}, {&all.values, &all.kept_values}}) {
      double error = 0, square = 0;
      for (size_t i = 0; i < in->size(); ++i) {
        const double off = (*kept)[i] - (*in)[i];
        EXPECT_LE(std::abs(off), 0.07 * std::abs((*in)[i]) + 1e-5);
        error += off * off, square += (*in)[i] * (*in)[i];
      }
      const double rms = std::sqrt(error / square);
      EXPECT_GT(rms, 0.01) << size;  // rounded at all
      EXPECT_LT(rms, 0.03) << size;
    }
  }
}

// A number 2^14 times as large lies in one block: numbers of the others keep their bits.
TEST(KvRounding, ALargeNumberCostsItsOwnBlockAlone) {
  constexpr int64_t kSize = 32;
  std::vector<float> key(kSize, 1.0625f), value(kSize, 0.0f), cache(2 * kSize);
  key[3] = 16384;
  const kernels::KvPages kv{.keys   = View<float, 4>(cache.data(), {1, 1, 1, kSize}),
                            .values = View<float, 4>(cache.data() + kSize, {1, 1, 1, kSize})};
  const int32_t first_row[] = {0, 1}, zero[] = {0};
  cpu_ops_rounding_kv(KvFormat::fp8)
      .kv_store(View<const float, 3>(key.data(), {1, 1, kSize}),
                View<const float, 3>(value.data(), {1, 1, kSize}),
                {.first_row = View<const int32_t, 1>(first_row, {2}),
                 .positions = View<const int32_t, 1>(zero, {1}),
                 .pages     = View<const int32_t, 2>(zero, {1, 1})},
                kv, {});
  for (int64_t d = 0; d < kSize; ++d) {
    const bool beside = d % 16 < 8;  // dimensions 0 to 7 and 16 to 23 share the block of number 3
    if (d == 3)
      EXPECT_EQ(cache[3], 16384);
    else if (beside)
      EXPECT_NE(cache[static_cast<size_t>(d)], 1.0625f) << d;
    else
      EXPECT_NEAR(cache[static_cast<size_t>(d)], 1.0625f, 0.04) << d;
  }
}

// The root of the mean square error of keys and values, over that of the numbers.
std::pair<double, double> rms_errors(const Stored& all) {
  const auto of = [](const std::vector<float>& in, const std::vector<float>& kept) {
    double error = 0, square = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const auto off = static_cast<double>(kept[i] - in[i]);
      error += off * off;
      square += static_cast<double>(in[i]) * static_cast<double>(in[i]);
    }
    return std::sqrt(error / square);
  };
  return {of(all.keys, all.kept_keys), of(all.values, all.kept_values)};
}

// Uniform numbers: FP8 keeps 2 %, 4 bits some 9 %, keys and values each in its own format.
TEST(KvRounding, FourBitsOfValuesOrOfBoth) {
  for (const int64_t size : {16, 32, 48, 64}) {
    const auto [k8, v4] = rms_errors(stored(cpu_ops_rounding_kv(KvFormat::k8v4), size));
    EXPECT_EQ(k8, rms_errors(stored(cpu_ops_rounding_kv(KvFormat::fp8), size)).first);
    EXPECT_GT(v4, 0.05) << size;
    EXPECT_LT(v4, 0.13) << size;
    const auto [k4, same_v4] = rms_errors(stored(cpu_ops_rounding_kv(KvFormat::nvfp4), size));
    EXPECT_GT(k4, 0.05) << size;
    EXPECT_LT(k4, 0.13) << size;
    EXPECT_EQ(same_v4, v4);
  }
}

// As GpuKvCache has them: beside 4 bits, layers with a window are in BF16; beside FP8 they are in FP8.
TEST(KvRounding, LayersWithAWindowAreBf16BesideFourBits) {
  const auto of_window = [](KvFormat format) {
    Ops ops      = cpu_ops_rounding_kv(format);
    ops.kv_store = ops.window_kv_store;
    return rms_errors(stored(ops, 64));
  };
  const auto of_bf16 = rms_errors(stored(cpu_ops_rounding_kv(KvFormat::bf16), 64));
  EXPECT_EQ(of_window(KvFormat::k8v4), of_bf16);
  EXPECT_EQ(of_window(KvFormat::nvfp4), of_bf16);
  EXPECT_EQ(of_window(KvFormat::fp8), rms_errors(stored(cpu_ops_rounding_kv(KvFormat::fp8), 64)));
}

// Without rounding to speak of, a rotation and its inverse change nothing; a large channel that hides its
// neighbours is spread over the head.
TEST(KvRounding, AHadamardRotationIsUndoneAndSpreadsALargeChannel) {
  for (const int64_t size : {16, 32, 64}) {
    const auto [k, v] = rms_errors(stored(cpu_ops_rounding_kv(KvFormat::bf16, KvRotation::hadamard), size));
    EXPECT_LT(k, 0.004) << size;
    EXPECT_LT(v, 0.004) << size;
  }
  constexpr int64_t kSize = 64;
  std::vector<float> key(kSize), value(kSize, 0.0f), plain(2 * kSize), rotated(2 * kSize);
  for (size_t d = 0; d < key.size(); ++d) key[d] = static_cast<float>(d * 7 % 16) / 8 - 1;
  key[3]                    = 30;
  const int32_t first_row[] = {0, 1}, zero[] = {0};
  const auto store = [&](KvRotation rotation, std::vector<float>& cache) {
    cpu_ops_rounding_kv(KvFormat::nvfp4, rotation)
        .kv_store(View<const float, 3>(key.data(), {1, 1, kSize}),
                  View<const float, 3>(value.data(), {1, 1, kSize}),
                  {.first_row = View<const int32_t, 1>(first_row, {2}),
                   .positions = View<const int32_t, 1>(zero, {1}),
                   .pages     = View<const int32_t, 2>(zero, {1, 1})},
                  {.keys   = View<float, 4>(cache.data(), {1, 1, 1, kSize}),
                   .values = View<float, 4>(cache.data() + kSize, {1, 1, 1, kSize})},
                  {});
  };
  store(KvRotation::none, plain);
  store(KvRotation::hadamard, rotated);
  // Dimensions 0 to 7 and 32 to 39 share a block with the large one: its scale is 5, and they are lost.
  EXPECT_EQ(plain[3], 30);
  for (const size_t d : {0, 1, 2, 4, 33, 39}) EXPECT_EQ(std::abs(plain[d]), 0) << d;
  double kept = 0;
  for (size_t d = 0; d < key.size(); ++d)
    if (d != 3) kept += static_cast<double>(rotated[d] * key[d]) / (63 * 0.34);
  EXPECT_NEAR(kept, 1, 0.35);  // they are there, each with an error
}

}  // namespace
}  // namespace fathom::model
