#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"

namespace fathom::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Heads {
  int64_t group = 1, kv_heads = 1, head_dim = 16;

  int64_t query_heads() const { return group * kv_heads; }
};

// Sequences with keys, values and queries for all of their positions, and a cache of shuffled pages. It has
// the keys and values in reach of a call's rows and NaN everywhere else.
class Sequences {
 public:
  Sequences(const Heads& heads, const std::vector<int64_t>& lengths, int64_t page_size, int64_t window,
            float sink = 0.5f)
      : heads_(heads), lengths_(lengths), page_size_(page_size), window_(window) {
    std::mt19937 random(static_cast<uint32_t>(heads.head_dim * 1000 + heads.group));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (const int64_t length : lengths) {
      keys_.emplace_back(length * heads.kv_heads * heads.head_dim);
      values_.emplace_back(length * heads.kv_heads * heads.head_dim);
      queries_.emplace_back(length * heads.query_heads() * heads.head_dim);
      for (auto* numbers : {&keys_.back(), &values_.back(), &queries_.back()})
        for (float& number : *numbers) number = uniform(random);
      for (float& number : queries_.back()) number *= 4;  // so that weights differ
      longest_ = std::max(longest_, (length + page_size - 1) / page_size);
    }
    for (int64_t h = 0; h < heads.query_heads(); ++h)
      sinks_.emplace_back(sink + (std::isfinite(sink) ? uniform(random) : 0));
    page_of_.resize(lengths.size() * static_cast<size_t>(longest_));
    for (size_t i = 0; i < page_of_.size(); ++i) page_of_[i] = static_cast<int32_t>(i);
    std::shuffle(page_of_.begin(), page_of_.end(), random);
  }

  // Rows of one sequence: positions begin .. end.
  struct Piece {
    int64_t sequence, begin, end;
  };

  // The results [rows, Hq, Dh] for the pieces' rows.
  std::vector<float> attend(decltype(&attention_reference) op, const std::vector<Piece>& pieces,
                            int threads) const {
    const int64_t row = heads_.query_heads() * heads_.head_dim, slot = heads_.kv_heads * heads_.head_dim;
    const auto S         = static_cast<int64_t>(pieces.size());
    const int64_t unused = static_cast<int64_t>(page_of_.size());  // a page of NaN
    std::vector<float> keys(static_cast<size_t>((unused + 1) * page_size_ * slot), kNaN), values = keys, q;
    std::vector<int32_t> first_row{0}, positions, pages(static_cast<size_t>(S * longest_), -1);
    for (int64_t s = 0; s < S; ++s) {
      const auto [sequence, begin, end] = pieces[static_cast<size_t>(s)];
      const auto& queries               = queries_[static_cast<size_t>(sequence)];
      q.insert(q.end(), queries.begin() + begin * row, queries.begin() + end * row);
      for (int64_t position = begin; position < end; ++position)
        positions.push_back(static_cast<int32_t>(position));
      first_row.push_back(static_cast<int32_t>(positions.size()));
      for (int64_t position = window_ ? std::max<int64_t>(0, begin - window_ + 1) : 0;
           begin < end && position < end; ++position) {
        const int64_t page = page_of_[static_cast<size_t>(sequence * longest_ + position / page_size_)];
        const int64_t to   = (page * page_size_ + position % page_size_) * slot;
        pages[static_cast<size_t>(s * longest_ + position / page_size_)] = static_cast<int32_t>(page);
        std::copy_n(keys_[static_cast<size_t>(sequence)].begin() + position * slot, slot, keys.begin() + to);
        std::copy_n(values_[static_cast<size_t>(sequence)].begin() + position * slot, slot,
                    values.begin() + to);
      }
    }
    const auto T = static_cast<int64_t>(positions.size());
    std::vector<float> out(q.size(), kNaN);
    ThreadPool pool(threads);
    const int64_t bytes = attention_cpu_scratch_bytes(heads_.query_heads(), heads_.head_dim, threads);
    const auto scratch  = std::make_unique<Line[]>(static_cast<size_t>((bytes + 63) / 64));
    std::memset(scratch.get(), 0xff, static_cast<size_t>(bytes));
    op({q.data(), {T, heads_.query_heads(), heads_.head_dim}},
       {{keys.data(), {unused + 1, page_size_, heads_.kv_heads, heads_.head_dim}},
        {values.data(), {unused + 1, page_size_, heads_.kv_heads, heads_.head_dim}}},
       {sinks_.data(), {heads_.query_heads()}}, window_,
       {{first_row.data(), {S + 1}}, {positions.data(), {T}}, {pages.data(), {S, longest_}}},
       {out.data(), {T, heads_.query_heads(), heads_.head_dim}},
       {.threads = &pool, .scratch = {scratch[0].bytes, {bytes}}});
    return out;
  }

  std::vector<Piece> whole() const {
    std::vector<Piece> pieces;
    for (size_t s = 0; s < lengths_.size(); ++s) pieces.push_back({static_cast<int64_t>(s), 0, lengths_[s]});
    return pieces;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  Heads heads_;
  std::vector<int64_t> lengths_;
  int64_t page_size_, window_, longest_ = 1;
  std::vector<std::vector<float>> keys_, values_, queries_;
  std::vector<bf16> sinks_;
  std::vector<int32_t> page_of_;
};

// Values are in [-1, 1] and weights sum to at most 1; a score is off by at most some 2 u sqrt(Dh) |q| |k| and
// moves a weight by as much. u = 2^-24, |q| <= 4 sqrt(Dh), |k| <= sqrt(Dh), over sqrt(Dh): 8 Dh u.
double tolerance(int64_t head_dim) { return 8 * static_cast<double>(head_dim) * 6e-8; }

void expect_near(const std::vector<float>& expected, const std::vector<float>& got, double tolerance) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(std::abs(expected[i] - got[i]) <= tolerance)
        << "at " << i << ": " << got[i] << " for " << expected[i];
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_reference(const Sequences& sequences, const std::vector<Sequences::Piece>& pieces, int threads,
                      double tolerance) {
  const auto expected = sequences.attend(attention_reference, pieces, 1);
  for_each_simd_target(
      [&] { expect_near(expected, sequences.attend(attention_cpu, pieces, threads), tolerance); });
}

TEST(Attention, AgreesWithTheReference) {
  constexpr int64_t kPage = 16;
  for (const int64_t head_dim : {16, 32, 64})
    for (const auto& [group, kv_heads] : {std::pair<int64_t, int64_t>{1, 3}, {4, 2}, {8, 3}})
      for (const int64_t window : {0, 1, 8, 128}) {
        SCOPED_TRACE(testing::Message() << "Dh " << head_dim << ", " << group << " x " << kv_heads
                                        << " heads, window " << window);
        const Sequences sequences({group, kv_heads, head_dim}, {1, kPage - 1, kPage, 41, kPage + 1, 0, 300},
                                  kPage, window);
        std::vector<Sequences::Piece> mixed = sequences.whole();
        mixed[1].begin                      = mixed[1].end - 1;  // a decode
        mixed[6].begin                      = 200;               // a chunk whose window reaches back
        expect_reference(sequences, mixed, 2, tolerance(head_dim));
        if (window != 1) expect_reference(sequences, {{6, 0, 150}}, 2, tolerance(head_dim));
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST(Attention, OddPagesAndHeadsThatFillNoVector) {
  for (const int64_t head_dim : {2, 6, 18, 130})
    for (const int64_t page : {1, 7, 64, 1000}) {
      const Sequences sequences({3, 2, head_dim}, {67, 129, 2}, page, 65);
      expect_reference(sequences, sequences.whole(), 3, tolerance(head_dim));
      if (testing::Test::HasFatalFailure()) return;
    }
}

// The engine relies on this: chunking, batching and the number of threads do not change results.
TEST(Attention, ARowsBitsDependOnNothingButTheRow) {
  for_each_simd_target([&] {
    for (const auto& [group, kv_heads] : {std::pair<int64_t, int64_t>{1, 3}, {4, 2}, {8, 3}})
      for (const int64_t window : {0, 8, 128}) {
        SCOPED_TRACE(testing::Message() << group << " x " << kv_heads << " heads, window " << window);
        const Sequences sequences({group, kv_heads, 32}, {150, 41}, 16, window);
        const auto whole = sequences.attend(attention_cpu, sequences.whole(), 1);
        for (const int threads : {2, 3, 16})
          EXPECT_TRUE(same_bits(sequences.attend(attention_cpu, sequences.whole(), threads), whole));
        for (const int64_t chunk : {1, 7, 64}) {
          std::vector<float> joined;
          for (const auto& [sequence, first, length] : sequences.whole())
            for (int64_t begin = first; begin < length; begin += chunk) {
              // The second sequence's last token is in the same batch.
              std::vector<Sequences::Piece> pieces{{sequence, begin, std::min(begin + chunk, length)}};
              if (sequence == 0) pieces.push_back({1, 40, 41});
              const auto rows = sequences.attend(attention_cpu, pieces, 2);
              joined.insert(joined.end(), rows.begin(),
                            rows.begin() + (pieces[0].end - pieces[0].begin) * group * kv_heads * 32);
            }
          EXPECT_TRUE(same_bits(joined, whole)) << "in chunks of " << chunk;
        }
      }
  });
}

TEST(Attention, SinksOfAnySize) {
  for (const float sink : {-INFINITY, -3e38f, -100.0f, 0.0f, 20.0f, 80.0f, 3e38f}) {
    SCOPED_TRACE(sink);
    const Sequences sequences({4, 2, 16}, {90, 3}, 16, 8, sink);
    float largest = 0;
    for (const float number : sequences.attend(attention_reference, sequences.whole(), 1))
      largest = std::max(largest, std::abs(number));
    expect_reference(sequences, sequences.whole(), 2, tolerance(16) * largest);
  }
}

// A row of padding has position -1 and nothing in reach: the sink has all of the weight.
TEST(Attention, ARowThatSeesNothingIsZero) {
  for_each_simd_target([&] {
    ThreadPool pool(1);
    const std::vector<float> q(8, 1), cache(16, kNaN);
    const std::vector<bf16> sinks(2, bf16(0.0f));
    const std::vector<int32_t> first_row{0, 1}, positions{-1}, pages{-1};
    std::vector<float> out(8, 7);
    alignas(64) std::byte scratch[1 << 16];
    const int64_t bytes = attention_cpu_scratch_bytes(2, 4, 1);
    ASSERT_LE(bytes, static_cast<int64_t>(sizeof scratch));
    std::vector<float> keys = cache, values = cache;
    attention_cpu({q.data(), {1, 2, 4}}, {{keys.data(), {1, 2, 2, 4}}, {values.data(), {1, 2, 2, 4}}},
                  {sinks.data(), {2}}, 0,
                  {{first_row.data(), {2}}, {positions.data(), {1}}, {pages.data(), {1, 1}}},
                  {out.data(), {1, 2, 4}}, {.threads = &pool, .scratch = {scratch, {bytes}}});
    EXPECT_EQ(out, std::vector<float>(8, 0));
  });
}

TEST(Attention, NoRowsNoSequences) {
  const Sequences sequences({4, 2, 16}, {5, 9}, 4, 0);
  EXPECT_TRUE(sequences.attend(attention_cpu, {}, 2).empty());
  EXPECT_TRUE(sequences.attend(attention_cpu, {{0, 3, 3}, {1, 9, 9}}, 2).empty());
}

TEST(Attention, APositionInReachWithoutAPageIsABrokenContract) {
  ThreadPool pool(2);
  std::vector<float> numbers(64, 1), out(16);
  const std::vector<bf16> sinks(2, bf16(0.0f));
  const std::vector<int32_t> first_row{0, 1}, positions{5}, pages{0, -1};
  std::vector<std::byte> scratch(static_cast<size_t>(attention_cpu_scratch_bytes(2, 4, 2)) + 64);
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  const KvPages kv{{numbers.data(), {2, 4, 1, 4}}, {numbers.data(), {2, 4, 1, 4}}};
  const auto attend = [&](const Execution& on) {
    attention_cpu({numbers.data(), {1, 2, 4}}, kv, {sinks.data(), {2}}, 0,
                  {{first_row.data(), {2}}, {positions.data(), {1}}, {pages.data(), {1, 2}}},
                  {out.data(), {1, 2, 4}}, on);
  };
  const View<std::byte, 1> aligned(scratch.data() + (64 - address % 64) % 64,
                                   {attention_cpu_scratch_bytes(2, 4, 2)});
  EXPECT_THROW(attend({.threads = &pool, .scratch = aligned}), ContractError);
  EXPECT_THROW(attend({.threads = &pool, .scratch = {aligned.data(), {aligned.bytes() - 1}}}), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
