// The ops' declared costs against counts that walk over operands and results element by element.
#include "kernels/cost.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "kernels/attention/attention_cost.h"
#include "kernels/attention/kv_layer.h"
#include "kernels/attention/rope_table.h"
#include "kernels/embedding/embedding_gpu.h"
#include "kernels/gemm/linear_gpu.h"
#include "kernels/moe/experts_cost.h"
#include "kernels/moe/permute.h"
#include "kernels/moe/rmsnorm_router.h"
#include "kernels/norm/add_rmsnorm.h"
#include "kernels/sampling/sample.h"

namespace fathom::kernels {
namespace {

// Distinct bytes that a walk reads and writes, by array and index, and its flops.
class Count {
 public:
  void read(char array, int64_t index, int bytes) { reads_.insert({{array, index}, bytes}); }
  void write(char array, int64_t index, int bytes) { writes_.insert({{array, index}, bytes}); }
  void flop(int n) { flops_ += n; }

  void expect_is(const Cost& cost) const {
    EXPECT_EQ(sum(reads_), cost.read);
    EXPECT_EQ(sum(writes_), cost.written);
    EXPECT_EQ(flops_, cost.flops);
  }

 private:
  using Accesses = std::set<std::pair<std::pair<char, int64_t>, int>>;
  static double sum(const Accesses& accesses) {
    double bytes = 0;
    for (const auto& access : accesses) bytes += access.second;
    return bytes;
  }

  Accesses reads_, writes_;
  double flops_ = 0;
};

TEST(Cost, AddsAndScales) {
  const Cost sum = 2 * Cost{1, 2, 3} + Cost{10, 20, 30};
  EXPECT_EQ(sum.read, 12);
  EXPECT_EQ(sum.written, 24);
  EXPECT_EQ(sum.flops, 36);
  EXPECT_EQ(sum.bytes(), 36);
}

TEST(Cost, OfTheFirstKernelsOfAStep) {
  for (const int64_t T : {0, 1, 7}) {
    constexpr int64_t H = 16;
    Count embed, table;
    for (int64_t t = 0; t < T; ++t) {
      embed.read('t', t, 4);
      embed.read('s', t, 4);
      for (int64_t h = 0; h < H; ++h) embed.read('e', t * H + h, 2), embed.write('x', t * H + h, 4);
      table.read('p', t, 4);
      for (int64_t d = 0; d < 64; ++d) table.write('r', t * 64 + d, 4);
    }
    for (int64_t d = 0; d < 32; ++d) table.read('f', d, 4);
    embed.expect_is(embedding_cost(T, H));
    table.expect_is(rope_table_cost(T));
  }
}

TEST(Cost, OfTheNorms) {
  for (const int64_t T : {1, 5})
    for (const int64_t top_k : {0, 1, 4}) {
      constexpr int64_t H = 12, E = 6;
      Count all, some, router;
      for (Count* count : {&all, &some, &router})
        for (int64_t h = 0; h < H; ++h) count->read('w', h, 4);
      for (int64_t t = 0; t < T; ++t) {
        some.read('r', t, 4);
        router.read('p', t, 4);
        for (int64_t h = 0; h < H; ++h) {
          for (Count* count : {&all, &some}) {
            count->read('x', t * H + h, 4);
            for (int64_t k = 0; k < top_k; ++k) count->read('o', (t * top_k + k) * H + h, 4), count->flop(1);
            count->flop(4);  // square, sum, two products
            count->write('y', t * H + h, 2);
          }
          if (top_k > 0) all.write('x', t * H + h, 4);
          router.read('x', t * H + h, 4);
          router.write('y', t * H + h, 2);
          router.flop(4);
          for (int64_t e = 0; e < E; ++e) router.read('e', e * H + h, 2), router.flop(2);
        }
        for (int64_t e = 0; e < E; ++e) router.read('b', e, 4);
        for (int64_t k = 0; k < top_k; ++k)
          router.write('i', t * top_k + k, 4), router.write('g', t * top_k + k, 4);
      }
      all.expect_is(add_rmsnorm_cost(T, H, top_k));
      some.expect_is(add_rmsnorm_rows_cost(T, H, top_k));
      router.expect_is(rmsnorm_router_cost(T, H, E, top_k));
    }
}

TEST(Cost, OfProductsWithPackedWeights) {
  constexpr int64_t N = 64, K = 128, kColumns = 50, kQueryHeads = 4, kKvHeads = 2;
  for (const int64_t T : {1, 3}) {
    Count plain, add, qkv;
    for (int64_t t = 0; t < T; ++t)
      for (int64_t n = 0; n < N; ++n) {
        for (int64_t k = 0; k < K; ++k)
          for (Count* count : {&plain, &add}) {
            count->read('w', n * K + k, 2);
            count->read('x', t * K + k, 2);
            count->flop(2);
          }
        plain.read('b', n, 4);
        if (n >= kColumns) continue;
        add.read('y', t * kColumns + n, 4);
        for (Count* count : {&plain, &add}) count->write('y', t * kColumns + n, 4);
      }
    plain.expect_is(linear_cost(T, N, K, kColumns, true));
    add.expect_is(linear_add_cost(T, N, K, kColumns, false));

    constexpr int64_t kRows = (kQueryHeads + 2 * kKvHeads) * 64;
    for (int64_t t = 0; t < T; ++t) {
      qkv.read('m', t, 4);
      for (int64_t d = 0; d < 64; ++d) qkv.read('t', t * 64 + d, 4);
      for (int64_t n = 0; n < kRows; ++n) {
        for (int64_t k = 0; k < K; ++k) qkv.read('w', n * K + k, 2), qkv.read('x', t * K + k, 2), qkv.flop(2);
        qkv.read('b', n, 4);
        if (n < kQueryHeads * 64)
          qkv.write('q', t * kRows + n, 2);
        else if (t > 0)  // the first row is padding
          qkv.write('c', t * kRows + n, 2);
      }
    }
    qkv.expect_is(qkv_rope_cost(T, T - 1, kQueryHeads, kKvHeads, K, kv_position_bytes(KvFormat::bf16)));
  }
}

TEST(Cost, OfAttentionCountsEachPositionOfASequenceOnce) {
  constexpr int64_t kQueryHeads = 4, kKvHeads = 2;
  struct Rows {
    int64_t first, count;
  };
  for (const int64_t window : {0, 1, 3, 100})
    for (const std::vector<Rows>& sequences :
         std::vector<std::vector<Rows>>{{{0, 1}}, {{9, 1}, {0, 0}, {4, 1}}, {{0, 7}}, {{5, 4}, {20, 2}}}) {
      AttentionReach reach;
      Count count;
      for (size_t s = 0; s < sequences.size(); ++s) {
        const auto [first, rows] = sequences[s];
        reach.add(first, rows, window);
        for (int64_t i = first; i < first + rows; ++i)
          for (int64_t h = 0; h < kQueryHeads; ++h)
            for (int64_t d = 0; d < 64; ++d) {
              const int64_t row = ((static_cast<int64_t>(s) * 100 + i) * kQueryHeads + h) * 64 + d;
              count.read('q', row, 2);
              count.write('o', row, 2);
              for (int64_t j = 0; j <= i; ++j) {
                if (window > 0 && j <= i - window) continue;
                const int64_t at =
                    ((static_cast<int64_t>(s) * 100 + j) * kKvHeads + h / (kQueryHeads / kKvHeads)) * 64 + d;
                count.read('k', at, 2);
                count.read('v', at, 2);
                count.flop(4);
              }
            }
      }
      count.expect_is(attention_cost(reach, kQueryHeads, kKvHeads, kv_position_bytes(KvFormat::bf16)));
    }
}

TEST(Cost, OfAPositionInTheCache) {
  EXPECT_EQ(kv_position_bytes(KvFormat::bf16) * kTile, 2 * Bf16KvPages::kElements * 2);
  EXPECT_EQ(kv_position_bytes(KvFormat::fp8), 2 * (64 + 4));  // codes and a scale for each 16 of them
  EXPECT_EQ(kv_position_bytes(KvFormat::k8v4), 64 + 4 + 32 + 4);
  EXPECT_EQ(kv_position_bytes(KvFormat::nvfp4), 2 * (32 + 4));
}

// Every way in which tokens can pick their experts, all as likely.
double mean_hit(int64_t E, int64_t top_k, int64_t tokens) {
  std::vector<unsigned> picks;
  for (unsigned mask = 0; mask < 1u << E; ++mask)
    if (__builtin_popcount(mask) == top_k) picks.push_back(mask);
  std::vector<unsigned> hits{0};
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<unsigned> more;
    for (const unsigned hit : hits)
      for (const unsigned pick : picks) more.push_back(hit | pick);
    hits = more;
  }
  double sum = 0;
  for (const unsigned hit : hits) sum += __builtin_popcount(hit);
  return sum / static_cast<double>(hits.size());
}

TEST(Cost, ExpectsAsManyExpertsAsRandomRoutingHits) {
  for (const int64_t E : {1, 4, 5})
    for (int64_t top_k = 1; top_k <= std::min<int64_t>(E, 3); ++top_k)
      for (const int64_t tokens : {0, 1, 2, 3})
        EXPECT_NEAR(expected_experts_hit(E, top_k, tokens), mean_hit(E, top_k, tokens), 1e-9)
            << tokens << " tokens, " << top_k << " of " << E;
}

TEST(Cost, OfExperts) {
  constexpr int64_t H = 64, kUnits = 64, kRows = 2 * kUnits, kTokens = 3, kTopK = 2, kHit = 4;
  Count up, down;
  for (int64_t e = 0; e < kHit; ++e) {
    for (int64_t w = 0; w < kRows * H / 2; ++w) up.read('c', e * kRows * H + w, 1);   // 4 bits a weight
    for (int64_t g = 0; g < kRows * H / 32; ++g) up.read('s', e * kRows * H + g, 1);  // a scale for 32
    for (int64_t w = 0; w < H * kUnits / 2; ++w) down.read('c', e * H * kUnits + w, 1);
    for (int64_t g = 0; g < H * kUnits / 32; ++g) down.read('s', e * H * kUnits + g, 1);
    for (int64_t n = 0; n < kRows; ++n) up.read('b', e * kRows + n, 4);
    for (int64_t n = 0; n < H; ++n) down.read('b', e * H + n, 4);
  }
  for (int64_t r = 0; r < kTokens * kTopK; ++r) {
    for (int64_t h = 0; h < H; ++h) up.read('x', r / kTopK * H + h, 2), down.write('o', r * H + h, 4);
    for (int64_t u = 0; u < kUnits; ++u) up.write('a', r * kUnits + u, 2), down.read('a', r * kUnits + u, 2);
    down.read('g', r, 4);
    up.flop(2 * kRows * H);
    down.flop(2 * H * kUnits);
  }
  up.expect_is(experts_up_cost(kHit, kTokens * kTopK, kTokens, H, kRows, H));
  down.expect_is(experts_down_cost(kHit, kTokens * kTopK, H, H, kUnits));
}

TEST(Cost, OfPermutingAndSampling) {
  constexpr int64_t R = 6, H = 8, E = 3, V = 20;
  Count sort, gather, sample;
  for (int64_t e = 0; e <= E; ++e) sort.write('o', e, 4);
  for (int64_t r = 0; r < R; ++r) {
    sort.read('e', r, 4);
    sort.write('i', r, 4);
    gather.read('i', r, 4);
    for (int64_t h = 0; h < H; ++h) gather.read('x', r * H + h, 2), gather.write('s', r * H + h, 2);
    sample.read('r', r, sizeof(SamplingRow));
    sample.write('t', r, 4);
    for (int64_t v = 0; v < V; ++v) {
      sample.read('l', r * V + v, 4);
      if (r < 2) sample.read('2', r * V + v, 4);  // a second pass over random rows
    }
  }
  sort.expect_is(sort_by_expert_cost(R, E));
  gather.expect_is(gather_rows_cost(R, H));
  sample.expect_is(sample_cost(R, 2, V));
}

}  // namespace
}  // namespace fathom::kernels
