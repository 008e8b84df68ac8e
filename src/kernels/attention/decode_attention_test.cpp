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
#include "kernels/attention/decode_attention.h"
#include "kernels/attention/kv_round_trip.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

constexpr int64_t kDh     = kHeadDim;
constexpr double kHalfUlp = 1.0 / 256, kFloatHalfUlp = 1.0 / (1 << 24);

struct Span {
  int64_t begin, end;  // positions of a sequence's rows; the cache has positions below end
};

constexpr KvFormat kFormats[] = {KvFormat::bf16, KvFormat::fp8, KvFormat::k8v4, KvFormat::nvfp4};

struct Problem {
  std::vector<Span> sequences;
  int64_t group = 8, kv_heads = 2, window = 0;
  float sink = 0, size = 2;  // the mean of the sinks; the size of queries
  int64_t padding = 0;       // rows of padding, after the others
  int64_t longest = 0;       // the bound `longest`, if not 0
  // Keys and values are those that a cache of this format can hold.
  KvFormat format = KvFormat::bf16;
};

// A cache of shuffled pages, in the GPU's layout and in the reference's. It has the keys and values in reach
// and NaN everywhere else.
class Cache {
 public:
  explicit Cache(const Problem& problem) : problem_(problem) {
    for (const auto [begin, end] : problem.sequences) longest_ = std::max({longest_, end, problem.longest});
    per_sequence_   = (longest_ + kTile - 1) / kTile;
    const auto S    = static_cast<int64_t>(problem.sequences.size());
    const int64_t n = S * per_sequence_ + 1;
    std::vector<int32_t> shuffled(static_cast<size_t>(n));
    std::iota(shuffled.begin(), shuffled.end(), 0);
    std::shuffle(shuffled.begin(), shuffled.end(), random_);
    pages.assign(static_cast<size_t>(S * per_sequence_), -1);
    memory.assign(static_cast<size_t>(n * problem.kv_heads * kTile * kv_position_bytes(problem.format)),
                  0xff);  // NaN in all formats
    keys.assign(static_cast<size_t>(n * problem.kv_heads * Bf16KvPages::kElements), NAN);
    values = keys;

    const KvPages to = reference_pages();
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t s = 0; s < S; ++s) {
      const auto [begin, end] = problem.sequences[static_cast<size_t>(s)];
      const int64_t first     = problem.window ? std::max<int64_t>(0, begin - problem.window + 1) : 0;
      for (int64_t j = first; j < end; ++j) {
        int32_t& page = pages[static_cast<size_t>(s * per_sequence_ + j / kTile)];
        page          = shuffled[static_cast<size_t>(s * per_sequence_ + j / kTile)];
        for (int64_t head = 0; head < problem.kv_heads; ++head) {
          float key[kDh], value[kDh];
          for (int64_t d = 0; d < kDh; ++d) key[d] = uniform(random_), value[d] = uniform(random_);
          if (problem.format != KvFormat::bf16)  // blocks of small numbers, and of large ones
            for (int64_t d = 0; d < kDh; ++d) {
              const auto loudness = static_cast<int>((d / 8 + j) % 4);
              key[d] = std::ldexp(key[d], loudness - 3), value[d] = std::ldexp(value[d], 3 * loudness - 6);
            }
          kv_round_trip(layer(memory.data()), page, head, j % kTile, key, value);
          for (int64_t d = 0; d < kDh; ++d) {
            to.keys(page, j % kTile, head, d)   = key[d];
            to.values(page, j % kTile, head, d) = value[d];
          }
        }
      }
    }
  }

  // The cache at address `at`, on the device or on the host.
  KvLayer layer(uint8_t* at) const {
    const int64_t heads = problem_.kv_heads,
                  n     = static_cast<int64_t>(keys.size()) / (heads * Bf16KvPages::kElements);
    return kv_layer(problem_.format, at, n, heads);
  }

  KvPages reference_pages() {
    const int64_t n = static_cast<int64_t>(keys.size()) / (kTile * problem_.kv_heads * kDh);
    return {{keys.data(), {n, kTile, problem_.kv_heads, kDh}},
            {values.data(), {n, kTile, problem_.kv_heads, kDh}}};
  }
  int64_t longest() const { return longest_; }
  int64_t per_sequence() const { return per_sequence_; }

  std::vector<uint8_t> memory;
  std::vector<float> keys, values;
  std::vector<int32_t> pages;  // [S, per_sequence]

 private:
  const Problem problem_;
  int64_t longest_ = 0, per_sequence_ = 0;
  std::mt19937 random_{12};
};

class AttendFew : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << why_no_device({0});
  }

  // The rows of all sequences in order, then the padding.
  struct Rows {
    std::vector<int32_t> positions, sequence, first_row{0};
    std::vector<bf16> q, sinks;
  };

  static Rows rows_of(const Problem& problem) {
    Rows rows;
    std::mt19937 random(34);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (size_t s = 0; s < problem.sequences.size(); ++s) {
      for (int64_t position = problem.sequences[s].begin; position < problem.sequences[s].end; ++position) {
        rows.positions.push_back(static_cast<int32_t>(position));
        rows.sequence.push_back(static_cast<int32_t>(s));
      }
      rows.first_row.push_back(static_cast<int32_t>(rows.positions.size()));
    }
    rows.positions.resize(rows.positions.size() + static_cast<size_t>(problem.padding), -1);
    rows.sequence.resize(rows.positions.size(), -1);
    const size_t heads = static_cast<size_t>(problem.kv_heads * problem.group);
    for (size_t i = 0; i < rows.positions.size() * heads * kDh; ++i)
      rows.q.emplace_back(uniform(random) * problem.size);
    for (size_t h = 0; h < heads; ++h) rows.sinks.emplace_back(problem.sink + uniform(random));
    return rows;
  }

  // Runs the op; returns out [T, Hq, 64], and checks that nothing else was written.
  static std::vector<bf16> attend(const Problem& problem, const Cache& cache, const Rows& rows) {
    const auto T = static_cast<int64_t>(rows.positions.size());
    const auto S = static_cast<int64_t>(problem.sequences.size()), heads = problem.kv_heads * problem.group;
    const GuardedDeviceBuffer memory(cache.memory);
    const GuardedDeviceBuffer pages(cache.pages), positions(rows.positions), sequence(rows.sequence);
    const GuardedDeviceBuffer q(rows.q);
    const GuardedDeviceBuffer sinks(std::vector<float>(rows.sinks.begin(), rows.sinks.end()));
    const GuardedDeviceBuffer<bf16> out(T * heads * kDh);
    decode_attention(q.view({T, heads, kDh}), cache.layer(memory.data()), sinks.view({heads}), 0.125f,
                     problem.window,
                     {positions.view({T}), sequence.view({T}), pages.view({S, cache.per_sequence()})},
                     cache.longest(), out.view({T, heads, kDh}), find_device({0})->stream());
    return out.read();
  }

  // Compares with the reference, and with a double loop that also computes the tolerance of each value.
  static void check(const Problem& problem) {
    Cache cache(problem);
    const Rows rows             = rows_of(problem);
    const std::vector<bf16> got = attend(problem, cache, rows);
    const int64_t heads         = problem.kv_heads * problem.group;
    const auto S                = static_cast<int64_t>(problem.sequences.size());
    const int64_t T             = rows.first_row.back();
    const std::vector<float> q(rows.q.begin(), rows.q.end());
    std::vector<float> expected(static_cast<size_t>(T * heads * kDh), NAN);
    attention_reference({q.data(), {T, heads, kDh}}, cache.reference_pages(), {rows.sinks.data(), {heads}},
                        problem.window,
                        {{rows.first_row.data(), {S + 1}},
                         {rows.positions.data(), {T}},
                         {cache.pages.data(), {S, cache.per_sequence()}}},
                        {expected.data(), {T, heads, kDh}}, {});
    double worst = 0;
    for (int64_t t = 0; t < T; ++t)
      for (int64_t h = 0; h < heads; ++h) {
        const size_t at       = static_cast<size_t>((t * heads + h) * kDh);
        const Bounded bounded = plain(problem, cache, rows.sequence[static_cast<size_t>(t)],
                                      rows.positions[static_cast<size_t>(t)], h, q.data() + at,
                                      static_cast<float>(rows.sinks[static_cast<size_t>(h)]));
        for (size_t d = 0; d < kDh; ++d) {
          const double value = static_cast<float>(got[at + d]);
          ASSERT_LE(std::abs(value - bounded.out[d]), bounded.error[d])
              << "row " << t << " head " << h << " dimension " << d << ": " << value << ", not "
              << bounded.out[d];
          ASSERT_LE(std::abs(value - expected[at + d]), bounded.error[d]) << "the reference's value";
          worst = std::max(worst, std::abs(value - bounded.out[d]) / bounded.error[d]);
        }
      }
    RecordProperty("part_of_bound", std::to_string(worst));
    for (size_t i = static_cast<size_t>(T * heads * kDh); i < got.size(); ++i)
      ASSERT_EQ(got[i].bits, 0) << "padding is zero";
  }

 private:
  struct Bounded {
    double out[kDh], error[kDh];
  };

  // A score is a sum of 64 products in fp32 and enters the exponent, where its error is relative to a weight
  // (in the sum above and in that below); weights are rounded to bf16 each for itself, and so is the result.
  // Below 2^-126 a weight, or what a sink leaves of the result, is zero.
  static Bounded plain(const Problem& problem, const Cache& cache, int64_t sequence, int64_t position,
                       int64_t h, const float* q, float sink) {
    const int64_t head  = h / problem.group;
    const int64_t first = problem.window ? std::max<int64_t>(0, position - problem.window + 1) : 0;
    std::vector<double> scores;
    double most = sink, products = std::abs(sink);
    const auto row = [&](const std::vector<float>& of, int64_t j) {
      const int64_t page = cache.pages[static_cast<size_t>(sequence * cache.per_sequence() + j / kTile)];
      return of.data() + ((page * kTile + j % kTile) * problem.kv_heads + head) * kDh;
    };
    for (int64_t j = first; j <= position; ++j) {
      double dot = 0, absolute = 0;
      for (int64_t d = 0; d < kDh; ++d) {
        const double product = static_cast<double>(q[d]) * row(cache.keys, j)[d];
        dot += product;
        absolute += std::abs(product);
      }
      scores.push_back(dot / 8);
      most     = std::max(most, scores.back());
      products = std::max(products, absolute / 8);
    }
    Bounded bounded = {};
    double total = std::exp(sink - most), absolute[kDh] = {}, squares[kDh] = {};
    for (int64_t j = first; j <= position; ++j) {
      const double weight = std::exp(scores[static_cast<size_t>(j - first)] - most);
      total += weight;
      for (int64_t d = 0; d < kDh; ++d) {
        const double term = weight * row(cache.values, j)[d];
        bounded.out[d] += term;
        absolute[d] += std::abs(term);
        squares[d] += term * term;
      }
    }
    const double in_exponent =
        std::expm1((4 * std::sqrt(64.0) + 8) * kFloatHalfUlp * products) + 16 * kFloatHalfUlp;
    const double in_sums = 4 * std::sqrt(static_cast<double>(position - first + 1)) * kFloatHalfUlp;
    for (int64_t d = 0; d < kDh; ++d) {
      bounded.out[d] /= total;
      bounded.error[d] = (2 * in_exponent + 2 * in_sums) * absolute[d] / total +
                         kHalfUlp * std::min(absolute[d], 4 * std::sqrt(squares[d])) / total +
                         kHalfUlp * std::abs(bounded.out[d]) + std::ldexp(1, -110);
    }
    return bounded;
  }
};

std::vector<Span> decoding(const std::vector<int64_t>& lengths) {
  std::vector<Span> spans;
  for (const int64_t length : lengths) spans.push_back({length - 1, length});
  return spans;
}

const std::vector<int64_t> kLengths = {1, 2, 63, 64, 65, 127, 128, 129, 1000, 4097};

TEST_F(AttendFew, IsAttention) {
  for (const int64_t group : {1, 4, 8})
    for (const int64_t window : {0, 64, 128}) {
      SCOPED_TRACE("group " + std::to_string(group) + " window " + std::to_string(window));
      for (const KvFormat format : kFormats)
        check({.sequences = decoding(kLengths), .group = group, .window = window, .format = format});
    }
}

TEST_F(AttendFew, OneRowIsCutIntoAllSplits) {
  for (const int64_t length : kLengths)
    for (const int64_t window : {0, 128, 1000}) {
      SCOPED_TRACE("length " + std::to_string(length) + " window " + std::to_string(window));
      for (const KvFormat format : kFormats)
        check({.sequences = decoding({length}), .window = window, .format = format});
    }
}

TEST_F(AttendFew, ShortRowsInALongBatch) {
  check({.sequences = decoding({1, 17, 129, 300}), .longest = 8192});
  check({.sequences = decoding({1, 700, 5}), .kv_heads = 1, .longest = 30000});
}

TEST_F(AttendFew, LongRowsAmongManyShortOnes) {
  std::vector<int64_t> lengths(30, 100);
  lengths[7]  = 9001;
  lengths[20] = 16500;  // more pages than a warp has lanes, for each of its warps
  for (const KvFormat format : kFormats)
    check({.sequences = decoding(lengths), .group = 1, .kv_heads = 8, .format = format});
}

TEST_F(AttendFew, ManyRows) {
  std::vector<int64_t> lengths(200);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int64_t>(i * 37 % 331 + 1);
  check({.sequences = decoding(lengths), .group = 4, .kv_heads = 8});
  check({.sequences = decoding(lengths), .group = 4, .kv_heads = 8, .window = 64});
}

TEST_F(AttendFew, SeveralRowsOfASequence) {
  const std::vector<Span> spans = {{0, 5}, {60, 67}, {1000, 1003}, {127, 130}};
  for (const int64_t window : {0, 64, 128})
    for (const KvFormat format : kFormats)
      check({.sequences = spans, .window = window, .padding = 3, .format = format});
}

TEST_F(AttendFew, SinksOfAnySize) {
  for (const float sink : {-1e30f, -1e4f, 30.0f, 1e4f})
    check({.sequences = decoding({1, 129, 2000}), .sink = sink, .padding = 1});
}

TEST_F(AttendFew, LargeScores) {
  for (const float size : {1e2f, 1e4f})
    for (const KvFormat format : kFormats)
      check({.sequences = decoding({1, 64, 129, 2000}), .size = size, .format = format});
}

TEST_F(AttendFew, OnlyPadding) { check({.sequences = {{0, 0}}, .padding = 5, .longest = 64}); }

TEST_F(AttendFew, NoRows) { check({.sequences = {{0, 0}}, .longest = 64}); }

TEST_F(AttendFew, SameBitsEachTimeWhateverTheOtherRows) {
  for (const auto& [window, format] : {std::pair{0, KvFormat::bf16},
                                       {128, KvFormat::bf16},
                                       {0, KvFormat::fp8},
                                       {128, KvFormat::fp8},
                                       {0, KvFormat::k8v4},
                                       {0, KvFormat::nvfp4}}) {
    const Problem problem = {
        .sequences = decoding({4097, 1000, 65, 2000}), .window = window, .padding = 2, .format = format};
    const Cache cache(problem);
    Rows rows        = rows_of(problem);
    const auto first = attend(problem, cache, rows);
    for (int again = 0; again < 20; ++again) {
      const auto other = attend(problem, cache, rows);
      ASSERT_EQ(std::memcmp(first.data(), other.data(), first.size() * sizeof(bf16)), 0);
    }
    rows.positions[1] = rows.positions[3] = -1;
    rows.positions[4]                     = 70;  // what was padding becomes a row of the first sequence
    rows.sequence[4]                      = 0;
    if (window) rows.positions[4] = 4096;
    const auto alone = attend(problem, cache, rows);
    const size_t row = static_cast<size_t>(problem.kv_heads * problem.group * kDh);
    for (const size_t t : {0u, 2u})
      ASSERT_EQ(std::memcmp(first.data() + t * row, alone.data() + t * row, row * sizeof(bf16)), 0);
  }
}

}  // namespace
}  // namespace fathom::kernels
