#include "kernels/attention/prefill_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/kv_round_trip.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

constexpr uint32_t kNaNs = 0xffffffff;  // two NaNs in bf16, one in fp32

// Positions begin .. end of a sequence, as rows of a batch.
struct Piece {
  int64_t begin, end;
};

struct Case {
  int64_t query_heads = 8, kv_heads = 2, window = 0;
  std::vector<Piece> pieces;
  float sink    = 0.5f;
  float loudest = 4;  // the largest query; keys and values are at most 1
  // A piece's first tile has this many rows, later ones kPrefillTileRows.
  int first_rows  = kPrefillTileRows;
  KvFormat format = KvFormat::bf16;  // keys and values are those that such a cache can hold
};

constexpr KvFormat kFormats[] = {KvFormat::bf16, KvFormat::fp8, KvFormat::k8v4, KvFormat::nvfp4};

std::vector<float> as_floats(const std::vector<bf16>& numbers) { return {numbers.begin(), numbers.end()}; }

// Queries, keys and values of the sequences, and the cache in both layouts: the reference's and the GPU's.
// The batch has the rows of the pieces, one after another, with a row of no tile before each piece and at the
// end.
class Prompts {
 public:
  Prompts(Device& device, const Case& c) : device_(device), c_(c) {
    std::mt19937 random(static_cast<uint32_t>(c.window + c.query_heads));
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto numbers = [&](int64_t n, float largest) {
      std::vector<bf16> v(static_cast<size_t>(n));
      for (bf16& x : v) x = bf16(largest * uniform(random));
      return v;
    };
    for (const Piece& piece : c.pieces) {
      longest_ = std::max(longest_, (piece.end + kTile - 1) / kTile);
      positions_.push_back(-1);
      for (int64_t p = piece.begin; p < piece.end; ++p) positions_.push_back(static_cast<int32_t>(p));
    }
    positions_.push_back(-1);
    const auto S = static_cast<int64_t>(c.pieces.size());
    q_           = numbers(rows() * c.query_heads * kHeadDim, c.loudest);
    for (int64_t h = 0; h < c.query_heads; ++h)
      sinks_.push_back(static_cast<float>(bf16(c.sink + uniform(random))));

    // Pages in shuffled order. The GPU's cache has NaN wherever the op must not read, and numbers that must
    // not count where a window has passed.
    cache_pages_ = S * longest_ + 1;
    std::vector<int32_t> shuffled(static_cast<size_t>(cache_pages_));
    std::iota(shuffled.begin(), shuffled.end(), 0);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    pages_.assign(static_cast<size_t>(S * longest_), -1);
    tiles_.assign(static_cast<size_t>(cache_pages_ * c.kv_heads * 2 * Bf16KvPages::kElements),
                  bf16::from_bits(kNaNs & 0xffff));
    packed_.assign(static_cast<size_t>(cache_pages_ * c.kv_heads * kTile * kv_position_bytes(c.format)),
                   kNaNs & 0xff);
    keys_.assign(static_cast<size_t>(cache_pages_ * kTile * c.kv_heads * kHeadDim), 0);
    values_ = keys_;
    const Bf16KvPages kv{tiles_.data(), cache_pages_, c.kv_heads};
    const KvLayer packed = kv_layer(c.format, packed_.data(), cache_pages_, c.kv_heads);
    for (int64_t s = 0; s < S; ++s) {
      const auto [begin, end] = c.pieces[static_cast<size_t>(s)];
      const int64_t reach     = c.window ? std::max<int64_t>(0, begin - c.window + 1) : 0;
      for (int64_t p = reach / kTile * kTile; p < end; ++p) {
        int32_t& page = pages_[static_cast<size_t>(s * longest_ + p / kTile)];
        page          = shuffled[static_cast<size_t>(s * longest_ + p / kTile)];
        for (int64_t head = 0; head < c.kv_heads; ++head) {
          const int64_t r = p % kTile;
          float numbers[2][kHeadDim];
          for (auto& number : numbers[0]) number = p < reach ? 1000 : uniform(random);
          for (int64_t d = 0; d < kHeadDim; ++d)  // blocks of small numbers, and of large ones
            numbers[1][d] = p < reach ? 1000
                                      : std::ldexp(uniform(random),
                                                   c.format == KvFormat::bf16 ? 0 : (d / 8 + p) % 4 * -3);
          kv_round_trip(packed, page, head, r, numbers[0], numbers[1]);
          for (const bool value : {false, true}) {
            for (int64_t d = 0; d < kHeadDim; ++d) {
              const float number  = numbers[value][d];
              const int64_t place = ((page * kTile + r) * c.kv_heads + head) * kHeadDim + d;
              (value ? values_ : keys_)[static_cast<size_t>(place)]                        = number;
              (value ? kv.values(page, head) : kv.keys(page, head))[Bf16KvPages::at(r, d)] = bf16(number);
            }
          }
        }
      }
    }
  }

  int64_t rows() const { return static_cast<int64_t>(positions_.size()); }

  // The results of all rows; rows of no tile are NaN. Padding tiles enlarge the grid, which decides the shape
  // of CTAs.
  std::vector<bf16> attend(int first_rows, int padding = 0) const {
    return attend(first_rows, padding, c_.format);
  }
  std::vector<bf16> attend(int first_rows, int padding, KvFormat format) const {
    std::vector<PrefillTile> tiles;
    int32_t row = 0;
    for (size_t s = 0; s < c_.pieces.size(); ++s) {
      ++row;
      auto left   = static_cast<int32_t>(c_.pieces[s].end - c_.pieces[s].begin);
      int32_t now = std::min(left, first_rows);
      for (; left > 0; left -= now, row += now, now = std::min(left, kPrefillTileRows))
        tiles.push_back({row, now, static_cast<int32_t>(s)});
      tiles.push_back({-1, 0, -1});
    }
    tiles.resize(tiles.size() + static_cast<size_t>(padding), {-1, 0, -1});
    const GuardedDeviceBuffer q(q_), bf16_cache(tiles_);
    const GuardedDeviceBuffer packed_cache(packed_);
    KvLayer cache = Bf16KvPages{bf16_cache.data(), cache_pages_, c_.kv_heads};
    if (format != KvFormat::bf16) cache = kv_layer(format, packed_cache.data(), cache_pages_, c_.kv_heads);
    const GuardedDeviceBuffer sinks(sinks_);
    const GuardedDeviceBuffer positions(positions_), pages(pages_);
    const GuardedDeviceBuffer list(tiles);
    const GuardedDeviceBuffer<bf16> out(q.size());
    const auto S = static_cast<int64_t>(c_.pieces.size());
    prefill_attention(q.view({rows(), c_.query_heads, kHeadDim}), cache, sinks.view({c_.query_heads}), 0.125f,
                      c_.window, list.view({list.size()}),
                      {positions.view({rows()}), {}, pages.view({S, longest_})},
                      out.view({rows(), c_.query_heads, kHeadDim}), device_.stream());
    return out.read();
  }

  // The reference's results for the pieces' rows, with these values.
  std::vector<float> reference(std::vector<float> values) const {
    const int64_t row = c_.query_heads * kHeadDim;
    const auto all    = as_floats(q_);
    std::vector<float> q, keys = keys_;
    std::vector<int32_t> first_row{0}, positions;
    for (int64_t t = 0; t < rows(); ++t) {
      if (positions_[static_cast<size_t>(t)] >= 0) {
        positions.push_back(positions_[static_cast<size_t>(t)]);
        q.insert(q.end(), all.begin() + t * row, all.begin() + (t + 1) * row);
      } else if (t > 0) {
        first_row.push_back(static_cast<int32_t>(positions.size()));
      }
    }
    const auto S = static_cast<int64_t>(c_.pieces.size()), T = static_cast<int64_t>(positions.size());
    std::vector<bf16> sinks;
    for (const float sink : sinks_) sinks.emplace_back(sink);
    std::vector<float> out(q.size());
    attention_reference(
        {q.data(), {T, c_.query_heads, kHeadDim}},
        {{keys.data(), {cache_pages_, kTile, c_.kv_heads, kHeadDim}},
         {values.data(), {cache_pages_, kTile, c_.kv_heads, kHeadDim}}},
        {sinks.data(), {c_.query_heads}}, c_.window,
        {{first_row.data(), {S + 1}}, {positions.data(), {T}}, {pages_.data(), {S, longest_}}},
        {out.data(), {T, c_.query_heads, kHeadDim}}, {});
    return out;
  }

  // An unnormalised weight is rounded to bf16 before it meets its value: 2^-8 of each |w v| at most. Scores
  // are sums of 64 products in fp32, of |q k| / 8 <= 8 loudest in all, and are rounded twice more in units of
  // log2: off by at most (4 sqrt(64) + 3) 2^-24 8 loudest < 2e-5 loudest, and so is the weight's logarithm;
  // exp2 and sums of some thousand weights add less than 1e-4. The result is rounded to bf16. Where the value
  // of the position that outweighs all others is 0, as 4 bits often have it, the result may be far smaller
  // than the values. Positions whose weights are below 2^-62 of the largest may be lost (kBound over 2^126).
  void expect_right() const {
    auto sizes = values_;
    for (float& v : sizes) v = std::abs(v);
    const auto expected = reference(values_), bound = reference(sizes);
    for (const int padding : {0, 200}) {
      SCOPED_TRACE("padding " + std::to_string(padding));
      expect_right(as_floats(attend(c_.first_rows, padding)), expected, bound);
    }
  }

 private:
  void expect_right(const std::vector<float>& out, const std::vector<float>& expected,
                    const std::vector<float>& bound) const {
    const int64_t row = c_.query_heads * kHeadDim;
    int64_t wrong = 0, at = 0;
    for (int64_t t = 0; t < rows(); ++t)
      for (int64_t i = 0; i < row; ++i) {
        const double x = out[static_cast<size_t>(t * row + i)];
        if (positions_[static_cast<size_t>(t)] < 0) {
          wrong += !std::isnan(x);
          continue;
        }
        const double y = expected[static_cast<size_t>(at)], size = bound[static_cast<size_t>(at)];
        ++at;
        const double tolerance = (0x1p-8 + 2e-5 * c_.loudest + 1e-4) * size + 0x1p-8 * std::abs(y) + 0x1p-62;
        if (std::abs(x - y) <= tolerance) continue;
        if (wrong++ == 0)
          ADD_FAILURE() << "row " << t << " head " << i / kHeadDim << " dim " << i % kHeadDim << ": " << x
                        << ", not " << y << " within " << tolerance;
      }
    EXPECT_EQ(wrong, 0);
  }

  Device& device_;
  Case c_;
  int64_t longest_ = 1, cache_pages_ = 0;
  std::vector<bf16> q_, tiles_;
  std::vector<uint8_t> packed_;
  std::vector<float> sinks_, keys_, values_;
  std::vector<int32_t> positions_, pages_;
};

class PagedAttentionMany : public testing::Test {
 protected:
  void SetUp() override {
    device = find_device({0});
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
  Device* device = nullptr;
};

TEST_F(PagedAttentionMany, WholePromptsOfEveryLength) {
  Case c;
  for (const int64_t length : {1, 2, 63, 64, 65, 127, 128, 129, 300}) c.pieces.push_back({0, length});
  for (const int64_t window : {0, 1, 64, 128})
    for (const KvFormat format : kFormats) {
      SCOPED_TRACE("window " + std::to_string(window) + ", format " +
                   std::to_string(static_cast<int>(format)));
      c.window = window;
      c.format = format;
      Prompts(*device, c).expect_right();
    }
}

TEST_F(PagedAttentionMany, ManyPages) {
  for (const int64_t window : {0, 300})
    Prompts(*device, {.query_heads = 4, .kv_heads = 1, .window = window, .pieces = {{0, 1000}, {1900, 1950}}})
        .expect_right();
}

// The warp that loads pages prefetches 32 page numbers at a time.
TEST_F(PagedAttentionMany, MorePagesThanAreKnownAtATime) {
  for (const KvFormat format : kFormats)
    Prompts(*device, {.query_heads = 4, .kv_heads = 1, .pieces = {{9000, 9030}}, .format = format})
        .expect_right();
}

TEST_F(PagedAttentionMany, PiecesContinueAnywhere) {
  Case c{.pieces = {{37, 38}, {37, 165}, {64, 128}, {64, 200}, {100, 101}, {100, 191}, {500, 530}}};
  for (const int64_t query_heads : {8, 16})
    for (const int64_t window : {0, 64, 128})
      for (const int first_rows : {27, kPrefillTileRows}) {
        SCOPED_TRACE("window " + std::to_string(window) + ", heads " + std::to_string(query_heads));
        c.query_heads = query_heads;
        c.window      = window;
        c.first_rows  = first_rows;
        Prompts(*device, c).expect_right();
      }
}

TEST_F(PagedAttentionMany, Sinks) {
  for (const float sink : {-1000.f, -20.f, 20.f, 1000.f}) {
    SCOPED_TRACE("sink " + std::to_string(sink));
    Prompts(*device, {.window = 64, .pieces = {{0, 5}, {3, 130}}, .sink = sink}).expect_right();
  }
}

// Weights that overflow beside the sink, and beside the scores before them.
TEST_F(PagedAttentionMany, LoudScores) {
  for (const float loudest : {40.f, 400.f})
    for (const int64_t window : {0, 64}) {
      SCOPED_TRACE("loudest " + std::to_string(loudest) + ", window " + std::to_string(window));
      Prompts(*device, {.window = window, .pieces = {{0, 300}, {90, 200}}, .loudest = loudest})
          .expect_right();
    }
}

TEST_F(PagedAttentionMany, SameBitsHoweverRowsAreTiled) {
  for (const float loudest : {4.f, 100.f})
    for (const int64_t window : {0, 64, 300})
      for (const KvFormat format : kFormats) {
        const Prompts prompts(
            *device,
            {.window = window, .pieces = {{0, 300}, {90, 400}}, .loudest = loudest, .format = format});
        const auto once = prompts.attend(kPrefillTileRows);
        for (const int first_rows : {kPrefillTileRows, 1, 17, 38})
          for (const int padding : {0, 200}) {
            const auto again = prompts.attend(first_rows, padding);
            EXPECT_EQ(std::memcmp(once.data(), again.data(), once.size() * sizeof(bf16)), 0) << first_rows;
          }
      }
}

TEST_F(PagedAttentionMany, AQuantisedCacheIsTheBf16CacheOfItsNumbers) {
  for (const KvFormat format : {KvFormat::fp8, KvFormat::k8v4, KvFormat::nvfp4})
    for (const float loudest : {4.f, 400.f})
      for (const int64_t window : {0, 64, 300}) {
        const Prompts prompts(*device, {.query_heads = 8,
                                        .kv_heads    = 2,
                                        .window      = window,
                                        .pieces      = {{0, 300}, {37, 165}, {900, 1000}},
                                        .loudest     = loudest,
                                        .format      = format});
        prompts.expect_right();
        for (const int padding : {0, 200}) {
          const auto quantised = prompts.attend(kPrefillTileRows, padding, format);
          const auto its       = prompts.attend(kPrefillTileRows, padding, KvFormat::bf16);
          int64_t other        = 0;
          for (size_t i = 0; i < its.size(); ++i) {
            const auto a = static_cast<float>(quantised[i]), b = static_cast<float>(its[i]);
            // Sums over 4-bit values are 2^-6 of what they stand for, and underflow earlier.
            const bool lost = std::abs(a) < 0x1p-62f && std::abs(b) < 0x1p-62f;
            other += quantised[i].bits != its[i].bits && !lost;
          }
          EXPECT_EQ(other, 0) << "format " << static_cast<int>(format) << ", loudest " << loudest
                              << ", window " << window << ", padding " << padding;
        }
      }
}

TEST_F(PagedAttentionMany, NoRows) {
  const Prompts prompts(*device, {.pieces = {{5, 5}}});
  for (const float x : as_floats(prompts.attend(kPrefillTileRows))) EXPECT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace fathom::kernels
