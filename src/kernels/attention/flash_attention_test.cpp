#include "kernels/attention/flash_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "kernels/attention/attention_tiles.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

struct Lengths {
  int64_t rows, keys;
};

struct Options {
  std::vector<Lengths> sequences;
  int64_t query_heads = 4, kv_heads = 2;
  std::optional<float> sink = {};
  float loudest             = 4;  // the largest query; keys and values are at most 1
};

// The reference's mask and score, apart from those of the op: positions of a row and of a key.
using Visible = std::function<bool(int64_t sequence, int64_t q, int64_t k)>;
using ScoreOf = std::function<double(double score, int64_t head, int64_t q, int64_t k)>;

double same_score(double score, int64_t, int64_t, int64_t) { return score; }

// The dense formula in double, for all rows and heads.
struct Reference {
  std::vector<double> out, sizes;  // [T, Hq, D]; sizes: the same with |v| for v
  std::vector<double> lse;         // [Hq, T]
};

template <int kHeadSize>
class RaggedBatch {
 public:
  RaggedBatch(Device& device, const Options& options) : device_(device), o_(options) {
    for (const auto& [rows, keys] : o_.sequences) {
      q_offsets_.push_back(q_offsets_.back() + static_cast<int32_t>(rows));
      k_offsets_.push_back(k_offsets_.back() + static_cast<int32_t>(keys));
    }
    std::mt19937 random(static_cast<uint32_t>(kHeadSize + o_.query_heads));
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto numbers = [&](int64_t n, float largest) {
      std::vector<bf16> v(static_cast<size_t>(n));
      for (bf16& x : v) x = bf16(largest * uniform(random));
      return v;
    };
    q_ = numbers(rows() * o_.query_heads * kHeadSize, o_.loudest);
    k_ = numbers(keys() * o_.kv_heads * kHeadSize, 1);
    v_ = numbers(keys() * o_.kv_heads * kHeadSize, 1);
    if (o_.sink)
      for (int64_t h = 0; h < o_.query_heads; ++h) sinks_.push_back(*o_.sink + uniform(random));
  }

  int64_t rows() const { return q_offsets_.back(); }
  int64_t keys() const { return k_offsets_.back(); }

  // With blocks skipped, and with every block masked.
  template <class Mask, class Score>
  void expect_right(const Mask& mask, const Score& score, const Visible& visible,
                    const ScoreOf& score_of = same_score) const {
    const Reference expected = reference(visible, score_of);
    for (const KeptBlocks kept : {KeptBlocks::visible, KeptBlocks::all}) {
      SCOPED_TRACE(kept == KeptBlocks::all ? "every block" : "visible blocks");
      expect_right(mask, score, visible, kept, expected);
    }
  }

 private:
  static std::vector<double> doubles(const std::vector<bf16>& numbers) {
    const std::vector<float> floats(numbers.begin(), numbers.end());
    return {floats.begin(), floats.end()};
  }

  Reference reference(const Visible& visible, const ScoreOf& score_of) const {
    const int64_t heads = o_.query_heads, group = heads / o_.kv_heads;
    const auto all_q = doubles(q_), all_k = doubles(k_), all_v = doubles(v_);
    Reference r;
    r.out.resize(q_.size());
    r.sizes.resize(q_.size());
    r.lse.resize(static_cast<size_t>(heads * rows()));
    for (size_t s = 0; s < o_.sequences.size(); ++s)
      for (int64_t i = 0; i < o_.sequences[s].rows; ++i)
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t row = q_offsets_[s] + i, keys = o_.sequences[s].keys;
          const int64_t position = i + keys - o_.sequences[s].rows;
          const double* q        = &all_q[static_cast<size_t>((row * heads + h) * kHeadSize)];
          // The numbers of a key, in all_k or all_v.
          const auto of_key = [&](const std::vector<double>& all, int64_t key) {
            return &all[static_cast<size_t>(((k_offsets_[s] + key) * o_.kv_heads + h / group) * kHeadSize)];
          };
          double highest = sinks_.empty() ? -INFINITY : static_cast<double>(sinks_[static_cast<size_t>(h)]);
          std::vector<double> scores(static_cast<size_t>(keys), -INFINITY);
          for (int64_t key = 0; key < keys; ++key) {
            if (!visible(static_cast<int64_t>(s), position, key)) continue;
            const double* k = of_key(all_k, key);
            double sum      = 0;
            for (int64_t d = 0; d < kHeadSize; ++d) sum += q[d] * k[d];
            scores[static_cast<size_t>(key)] = score_of(static_cast<double>(kScale) * sum, h, position, key);
            highest                          = std::max(highest, scores[static_cast<size_t>(key)]);
          }
          double sum =
              sinks_.empty() ? 0 : std::exp(static_cast<double>(sinks_[static_cast<size_t>(h)]) - highest);
          double* out = &r.out[static_cast<size_t>((row * heads + h) * kHeadSize)];
          double* of  = &r.sizes[static_cast<size_t>((row * heads + h) * kHeadSize)];
          for (int64_t key = 0; key < keys; ++key) {
            const double score = scores[static_cast<size_t>(key)];
            if (score == -INFINITY) continue;
            const double weight = std::exp(score - highest);
            const double* v     = of_key(all_v, key);
            sum += weight;
            for (int64_t d = 0; d < kHeadSize; ++d) {
              const double product = weight * v[d];
              out[d] += product;
              of[d] += std::abs(product);
            }
          }
          for (int64_t d = 0; d < kHeadSize && sum > 0; ++d) {
            out[d] /= sum;
            of[d] /= sum;
          }
          r.lse[static_cast<size_t>(h * rows() + row)] = sum > 0 ? highest + std::log(sum) : -INFINITY;
        }
    return r;
  }

  template <class Mask, class Score>
  void expect_right(const Mask& mask, const Score& score, const Visible& visible, KeptBlocks kept,
                    const Reference& expected) const {
    const auto tiles   = attention_tiles(q_offsets_, k_offsets_, kHeadSize);
    const auto T       = static_cast<int64_t>(tiles.size());
    const int64_t most = most_key_blocks(k_offsets_, kHeadSize);
    const GuardedDeviceBuffer tile_list(tiles);
    const GuardedDeviceBuffer<uint32_t> blocks(T * most);
    const GuardedDeviceBuffer<int32_t> counts(T);
    const BlockMask block_mask{tile_list.view({T}), blocks.view({T, most}), counts.view({T})};
    build_block_mask(block_mask, kHeadSize, mask, kept, device_.stream());
    expect_lists(tiles, most, visible, kept, blocks.read(), counts.read());

    const GuardedDeviceBuffer q(q_), k(k_), v(v_);
    const GuardedDeviceBuffer sinks(sinks_);
    const GuardedDeviceBuffer<bf16> out(q.size());
    const GuardedDeviceBuffer<float> lse(o_.query_heads * rows());
    const int64_t heads = o_.query_heads, kv_heads = o_.kv_heads;
    flash_attention<kHeadSize>(
        {.q     = q.view({rows(), heads, kHeadSize}),
         .k     = k.view({keys(), kv_heads, kHeadSize}),
         .v     = v.view({keys(), kv_heads, kHeadSize}),
         .sinks = sinks_.empty() ? View<const float, 1>{} : View<const float, 1>(sinks.view({heads})),
         .scale = kScale,
         .out   = out.view({rows(), heads, kHeadSize}),
         .lse   = lse.view({heads, rows()})},
        block_mask, mask, score, device_.stream());
    expect_close(out.read(), lse.read(), expected);
  }

  // What each warpgroup's rows see of each block, pair by pair.
  void expect_lists(const std::vector<AttentionTile>& tiles, int64_t most, const Visible& visible,
                    KeptBlocks kept, const std::vector<uint32_t>& blocks,
                    const std::vector<int32_t>& counts) const {
    constexpr int kBlock = kHeadSize == 64 ? 64 : 128, kWarpgroups = kHeadSize == 64 ? 3 : 2;
    for (size_t t = 0; t < tiles.size(); ++t) {
      const AttentionTile& tile = tiles[t];
      std::vector<uint32_t> expected;
      for (int64_t block = 0; block * kBlock < tile.keys; ++block) {
        uint32_t entry = 0;
        for (int w = 0; w < kWarpgroups; ++w) {
          bool some = false, all = true;
          for (int row = 64 * w; row < std::min(64 * w + 64, tile.rows); ++row)
            for (int64_t key = block * kBlock; key < (block + 1) * kBlock; ++key) {
              const bool seen = key < tile.keys && visible(tile.sequence, tile.position + row, key);
              some |= seen;
              all &= seen;
            }
          if (kept == KeptBlocks::all) {
            some = 64 * w < tile.rows;
            all  = false;
          }
          entry |= (some ? all ? 2u : 1u : 0u) << (24 + 2 * w);
        }
        if (entry != 0) expected.push_back(entry | static_cast<uint32_t>(block));
      }
      ASSERT_EQ(counts[t], static_cast<int32_t>(expected.size())) << "tile " << t;
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(blocks[t * static_cast<size_t>(most) + i], expected[i]) << "tile " << t << " entry " << i;
    }
  }

  // An unnormalised weight is rounded to bf16 before it meets its value: 2^-8 of each |w v| at most. Scores
  // are sums of D products in fp32, of |scale q k| <= sqrt(D) loudest in all, and are rounded thrice more:
  // off by at most (4 sqrt(128) + 4) 2^-24 sqrt(128) loudest < 4e-5 loudest. exp2, the sums and a functor's
  // own roundings add less than 1e-4. The result is rounded to bf16; lse is an fp32 number in units of log2
  // before it is one of ln.
  void expect_close(const std::vector<bf16>& out, const std::vector<float>& lse, const Reference& r) const {
    const double of_score = 4e-5 * static_cast<double>(o_.loudest) + 1e-4;
    int64_t wrong         = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const double x = static_cast<double>(static_cast<float>(out[i])), y = r.out[i];
      const double tolerance = (0x1p-8 + of_score) * r.sizes[i] + 0x1p-8 * std::abs(y) + 1e-30;
      if (std::abs(x - y) <= tolerance) continue;
      const int64_t place = static_cast<int64_t>(i) / kHeadSize;
      if (wrong++ == 0)
        ADD_FAILURE() << "row " << place / o_.query_heads << " head " << place % o_.query_heads << " dim "
                      << static_cast<int64_t>(i) % kHeadSize << ": " << x << ", not " << y << " within "
                      << tolerance;
    }
    EXPECT_EQ(wrong, 0) << "of " << out.size();
    wrong = 0;
    for (size_t i = 0; i < lse.size(); ++i) {
      const double x = static_cast<double>(lse[i]), y = r.lse[i];
      if (x == y || std::abs(x - y) <= of_score + 4e-7 * std::abs(y)) continue;  // x == y: both -infinity
      if (wrong++ == 0)
        ADD_FAILURE() << "lse of head " << static_cast<int64_t>(i) / rows() << " row "
                      << static_cast<int64_t>(i) % rows() << ": " << x << ", not " << y;
    }
    EXPECT_EQ(wrong, 0) << "of " << lse.size();
  }

  static constexpr float kScale = kHeadSize == 64 ? 0.125f : 0.08838835f;

  Device& device_;
  Options o_;
  std::vector<int32_t> q_offsets_{0}, k_offsets_{0};
  std::vector<bf16> q_, k_, v_;
  std::vector<float> sinks_;
};

// Lengths around the tiles (128 and 192 rows), the warpgroups (64) and the blocks (64 and 128 keys).
const std::vector<Lengths> kWhole = {{0, 0},     {1, 1},     {2, 2},     {13, 13},   {63, 63},
                                     {64, 64},   {65, 65},   {127, 127}, {128, 128}, {129, 129},
                                     {191, 191}, {192, 192}, {193, 193}, {300, 300}};
// Rows that continue a sequence; a sequence without keys, and one with rows before its first key.
const std::vector<Lengths> kContinued = {{1, 200}, {70, 333}, {7, 0}, {0, 50}, {5, 3}, {130, 131}, {64, 256}};

std::vector<Lengths> whole_and_continued() {
  std::vector<Lengths> all = kWhole;
  all.insert(all.end(), kContinued.begin(), kContinued.end());
  return all;
}

bool causal(int64_t, int64_t q, int64_t k) { return k <= q; }

template <class HeadSize>
class FlashAttentionMany : public testing::Test {
 protected:
  static constexpr int kHeadSize = HeadSize::value;
  using Batch                    = RaggedBatch<kHeadSize>;

  void SetUp() override {
    device = find_device({0});
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
  Device* device = nullptr;
};
using HeadSizes = testing::Types<std::integral_constant<int, 64>, std::integral_constant<int, 128>>;
TYPED_TEST_SUITE(FlashAttentionMany, HeadSizes);

TYPED_TEST(FlashAttentionMany, Causal) {
  typename TestFixture::Batch(*this->device, {.sequences = whole_and_continued()})
      .expect_right(Causal{}, PlainScore{}, causal);
}

TYPED_TEST(FlashAttentionMany, HeadsWithAndWithoutGroups) {
  for (const int64_t kv_heads : {1, 3, 6}) {
    SCOPED_TRACE("key-value heads " + std::to_string(kv_heads));
    typename TestFixture::Batch(*this->device,
                                {.sequences = {{65, 65}, {200, 300}}, .query_heads = 6, .kv_heads = kv_heads})
        .expect_right(Causal{}, PlainScore{}, causal);
  }
}

// More blocks than the ring has stages, several times.
TYPED_TEST(FlashAttentionMany, ManyBlocks) {
  typename TestFixture::Batch(*this->device, {.sequences = {{193, 2500}}, .query_heads = 2, .kv_heads = 1})
      .expect_right(Causal{}, PlainScore{}, causal);
}

TYPED_TEST(FlashAttentionMany, SlidingWindow) {
  for (const int window : {1, 64, 100}) {
    SCOPED_TRACE("window " + std::to_string(window));
    typename TestFixture::Batch(*this->device, {.sequences = whole_and_continued()})
        .expect_right(SlidingWindow{window}, PlainScore{},
                      [window](int64_t, int64_t q, int64_t k) { return k <= q && k > q - window; });
  }
}

TYPED_TEST(FlashAttentionMany, PrefixLm) {
  const std::vector<Lengths> sequences = whole_and_continued();
  std::vector<int32_t> prefix;
  for (size_t s = 0; s < sequences.size(); ++s)
    prefix.push_back(static_cast<int32_t>(s * 37 % 150));  // longer than some sequences
  const GuardedDeviceBuffer on_device(prefix);
  typename TestFixture::Batch(*this->device, {.sequences = sequences})
      .expect_right(PrefixLm{on_device.data()}, PlainScore{}, [&](int64_t s, int64_t q, int64_t k) {
        return k <= q || k < prefix[static_cast<size_t>(s)];
      });
}

// Documents of 1, 2, 4, ... 128 positions, again and again, packed into each sequence.
struct Documents {
  explicit Documents(const std::vector<Lengths>& sequences) {
    for (const auto& [rows, keys] : sequences) {
      first.push_back(static_cast<int64_t>(begin.size()));
      for (int64_t from = 0, length = 1; from < keys;
           from += length, length   = length % 128 * 2 + length / 128)
        for (int64_t p = from; p < std::min(from + length, keys); ++p)
          begin.push_back(static_cast<int32_t>(from));
    }
  }
  bool visible(int64_t s, int64_t q, int64_t k) const {
    const auto at = [&](int64_t p) { return begin[static_cast<size_t>(first[static_cast<size_t>(s)] + p)]; };
    return k <= q && at(k) == at(q);
  }

  std::vector<int32_t> begin;
  std::vector<int64_t> first;  // of each sequence, in `begin`
};

TYPED_TEST(FlashAttentionMany, CausalDocuments) {
  const Documents documents(kWhole);
  const GuardedDeviceBuffer begin(documents.begin);
  typename TestFixture::Batch(*this->device, {.sequences = kWhole})
      .expect_right(CausalDocument{begin.data()}, PlainScore{},
                    [&](int64_t s, int64_t q, int64_t k) { return documents.visible(s, q, k); });
}

// Rows of blocks, and columns, that nobody sees: zeros and -infinity.
TYPED_TEST(FlashAttentionMany, BlockSparse) {
  constexpr int kBlocks           = 6;                  // of 64 positions: 384
  const std::vector<uint8_t> kept = {1, 0, 0, 0, 0, 0,  //
                                     0, 0, 0, 0, 0, 0,  //
                                     0, 1, 1, 0, 0, 1,  //
                                     1, 0, 0, 1, 0, 0,  //
                                     0, 0, 1, 0, 0, 0,  //
                                     1, 1, 1, 1, 0, 1};
  const GuardedDeviceBuffer on_device(kept);
  for (const std::optional<float> sink : {std::optional<float>(), std::optional<float>(-1.0f)}) {
    SCOPED_TRACE(sink ? "sink" : "no sink");
    typename TestFixture::Batch(*this->device, {.sequences = whole_and_continued(), .sink = sink})
        .expect_right(BlockSparse{on_device.data(), kBlocks}, PlainScore{},
                      [&](int64_t, int64_t q, int64_t k) {
                        return q >= 0 && kept[static_cast<size_t>(q / 64 * kBlocks + k / 64)] != 0;
                      });
  }
}

TYPED_TEST(FlashAttentionMany, Sinks) {
  for (const float sink : {-1000.f, -20.f, 0.f, 20.f, 1000.f}) {
    SCOPED_TRACE("sink " + std::to_string(sink));
    typename TestFixture::Batch(*this->device,
                                {.sequences = {{5, 5}, {200, 330}, {5, 3}, {7, 0}}, .sink = sink})
        .expect_right(Causal{}, PlainScore{}, causal);
  }
}

std::vector<float> some_numbers(int64_t n, float largest) {
  std::mt19937 random(static_cast<uint32_t>(n));
  std::uniform_real_distribution<float> uniform(-largest, largest);
  std::vector<float> numbers(static_cast<size_t>(n));
  for (float& x : numbers) x = uniform(random);
  return numbers;
}

TYPED_TEST(FlashAttentionMany, RelativeBiasOfDocuments) {
  constexpr int kReach          = 40;
  const std::vector<float> bias = some_numbers(4 * (2 * kReach + 1), 3);
  const Documents documents(kWhole);
  const GuardedDeviceBuffer begin(documents.begin);
  const GuardedDeviceBuffer on_device(bias);
  typename TestFixture::Batch(*this->device, {.sequences = kWhole, .sink = 0.5f})
      .expect_right(
          CausalDocument{begin.data()}, RelativeBias{on_device.data(), kReach},
          [&](int64_t s, int64_t q, int64_t k) { return documents.visible(s, q, k); },
          [&](double score, int64_t head, int64_t q, int64_t k) {
            const int64_t distance = std::clamp<int64_t>(k - q, -kReach, kReach);
            return score + static_cast<double>(
                               bias[static_cast<size_t>(head * (2 * kReach + 1) + kReach + distance)]);
          });
}

TYPED_TEST(FlashAttentionMany, AlibiOfEveryKey) {
  const std::vector<float> slopes = {0.25f, 0.0625f, -0.25f, 0};
  const GuardedDeviceBuffer on_device(slopes);
  for (const float loudest : {4.f, 400.f}) {
    SCOPED_TRACE("loudest " + std::to_string(loudest));
    typename TestFixture::Batch(*this->device, {.sequences = whole_and_continued(), .loudest = loudest})
        .expect_right(
            EveryKey{}, Alibi{on_device.data()}, [](int64_t, int64_t, int64_t) { return true; },
            [&](double score, int64_t head, int64_t q, int64_t k) {
              return score +
                     static_cast<double>(slopes[static_cast<size_t>(head)]) * static_cast<double>(k - q);
            });
  }
}

TYPED_TEST(FlashAttentionMany, SoftCapOfAWindow) {
  for (const float loudest : {4.f, 400.f}) {
    SCOPED_TRACE("loudest " + std::to_string(loudest));
    typename TestFixture::Batch(*this->device, {.sequences = whole_and_continued(), .loudest = loudest})
        .expect_right(
            SlidingWindow{150}, SoftCap{20},
            [](int64_t, int64_t q, int64_t k) { return k <= q && k > q - 150; },
            [](double score, int64_t, int64_t, int64_t) { return 20 * std::tanh(score / 20); });
  }
}

// Weights that overflow beside the reference of earlier blocks: with heads of 64, blocks are done again.
TYPED_TEST(FlashAttentionMany, LoudScores) {
  for (const float loudest : {40.f, 400.f})
    for (const std::optional<float> sink : {std::optional<float>(), std::optional<float>(-60.0f)}) {
      SCOPED_TRACE("loudest " + std::to_string(loudest) + (sink ? ", sink" : ""));
      typename TestFixture::Batch(*this->device,
                                  {.sequences = {{300, 300}, {100, 700}}, .sink = sink, .loudest = loudest})
          .expect_right(Causal{}, PlainScore{}, causal);
    }
}

TYPED_TEST(FlashAttentionMany, NoSequences) {
  typename TestFixture::Batch(*this->device, {.sequences = {}}).expect_right(Causal{}, PlainScore{}, causal);
  typename TestFixture::Batch(*this->device, {.sequences = {{0, 0}, {0, 9}}})
      .expect_right(Causal{}, PlainScore{}, causal);
}

}  // namespace
}  // namespace fathom::kernels
