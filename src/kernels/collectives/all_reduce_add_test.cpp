// All-reduce of two GPUs that one thread drives, against sums in double.
#include "kernels/collectives/all_reduce_add.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "core/rng.h"
#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "cuda/device_guard.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "cuda/peer_access.h"

namespace fathom::kernels {
namespace {

constexpr int kTwo                            = 2;
constexpr std::array<DeviceId, kTwo> kDevices = {DeviceId{0}, DeviceId{1}};
// 187 rows of 2880 are what one wave of CTAs of an H100 has.
constexpr std::array<int64_t, 12> kNumbersOfRows = {1, 2, 31, 32, 33, 127, 187, 188, 256, 257, 1000, 1};

class AllReduceAdd : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status can = can_access_peers(kDevices); !can) GTEST_SKIP() << can.error().message;
    enable_peer_access(kDevices);
  }
};

// What the ranks hold, with the numbers of the first all-reduce in `parts` and `x`.
struct Ranks {
  int64_t rows, addends, width;
  ReceiveBuffer layout{.ranks = kTwo, .max_rows = rows, .width = width};
  std::array<DeviceBuffer<std::byte>, kTwo> receive;
  std::array<DeviceBuffer<float>, kTwo> parts, x;
  std::array<DeviceBuffer<int32_t>, kTwo> pass, ids;
  std::array<Peers, kTwo> peers;

  Ranks(int64_t rows, int64_t addends, int64_t width) : rows(rows), addends(addends), width(width) {
    for (size_t r = 0; r < kTwo; ++r) {
      Device& device = fathom::device(kDevices[r]);
      receive[r]     = {device, layout.bytes()};
      device.set_words(receive[r].data(), receive[r].bytes(), 0);
      parts[r] = {device, rows * addends * width};
      x[r]     = {device, rows * width};
      pass[r]  = {device, 1};
    }
    for (size_t r = 0; r < kTwo; ++r) {
      peers[r] = {.rank = static_cast<int>(r), .layout = layout};
      for (size_t q = 0; q < kTwo; ++q) peers[r].receive[q] = receive[q].data();
    }
  }

  static Device& of(size_t r) { return device(kDevices[r]); }
  void set_pass(int32_t number) {
    for (size_t r = 0; r < kTwo; ++r) of(r).to_device(pass[r].data(), &number, 4);
  }
  void all_reduce(size_t r, int64_t count, int index) {
    all_reduce_add(View<const float, 3>(parts[r].as({count, addends, width})), ids_of(r, count), peers[r],
                   {.pass = View<const int32_t, 1>(pass[r].view()), .index = index, .count = 4},
                   x[r].as({count, width}), of(r).stream());
  }
  View<const int32_t, 2> ids_of(size_t r, int64_t count) const {
    if (ids[r].size() == 0) return View<const int32_t, 2>(nullptr, {0, 0});
    return View<const int32_t, 2>(ids[r].as({count, addends}));
  }
  template <class F>
  void on_each(F&& f) {
    for (size_t r = 0; r < kTwo; ++r) {
      const DeviceGuard current(kDevices[r]);
      f(r);
    }
  }
  void synchronize() {
    for (size_t r = 0; r < kTwo; ++r) of(r).synchronize();
  }
};

std::vector<float> normal(int64_t n, uint64_t seed) {
  std::vector<float> numbers(static_cast<size_t>(n));
  fill_normal(numbers.data(), n, seed, 0, 1);
  return numbers;
}

// Each third number is 0, every other of them -0, and the first two addends cancel in some columns: sums that
// are 0, whose bits say that nothing has come.
std::vector<float> parts_with_zeros(const Ranks& of, uint64_t seed) {
  const auto width = static_cast<size_t>(of.width), row = static_cast<size_t>(of.addends) * width;
  std::vector<float> numbers = normal(of.rows * of.addends * of.width, seed);
  for (size_t i = 0; i < numbers.size(); i += 3) numbers[i] = i % 2 ? 0.0f : -0.0f;
  for (size_t at = 0; of.addends > 1 && at < numbers.size(); at += row)
    for (size_t h = 0; h < width; h += 5) numbers[at + width + h] = -numbers[at + h];
  return numbers;
}

// As it was before the first call, or a later one would take old numbers for new ones.
void expect_nothing_received(const Ranks& ranks) {
  const ReceiveBuffer& layout = ranks.layout;
  for (size_t r = 0; r < kTwo; ++r) {
    std::vector<uint32_t> left(static_cast<size_t>(layout.bytes() - layout.rows(0, 0)) / 4);
    Ranks::of(r).to_host(left.data(), ranks.receive[r].data() + layout.rows(0, 0),
                         static_cast<int64_t>(left.size()) * 4);
    ASSERT_EQ(std::count(left.begin(), left.end(), 0u), static_cast<std::ptrdiff_t>(left.size())) << r;
  }
}

// `times` all-reduces into the same x, whose other halves still hold the one before.
void expect_sums(int64_t rows, int64_t addends, int64_t width, int times) {
  SCOPED_TRACE(testing::Message() << rows << " x " << addends << " x " << width);
  Ranks ranks(rows, addends, width);
  const std::vector<float> x = normal(rows * width, 99);
  std::vector<double> expected(x.begin(), x.end());
  for (size_t r = 0; r < kTwo; ++r) Ranks::of(r).to_device(ranks.x[r].data(), x.data(), ranks.x[r].bytes());
  for (int n = 0; n < times; ++n) {
    if (n % 4 == 0) ranks.set_pass(1 + n / 4);
    for (size_t r = 0; r < kTwo; ++r) {
      const auto parts = parts_with_zeros(ranks, 1000 + 2 * static_cast<uint64_t>(n) + r);
      Ranks::of(r).to_device(ranks.parts[r].data(), parts.data(), ranks.parts[r].bytes());
      for (int64_t t = 0; t < rows; ++t)
        for (int64_t j = 0; j < addends; ++j)
          for (int64_t h = 0; h < width; ++h)
            expected[static_cast<size_t>(t * width + h)] +=
                static_cast<double>(parts[static_cast<size_t>((t * addends + j) * width + h)]);
    }
    ranks.on_each([&](size_t r) { ranks.all_reduce(r, rows, n % 4); });
    ranks.synchronize();
  }
  std::array<std::vector<float>, kTwo> found;
  for (size_t r = 0; r < kTwo; ++r) {
    found[r].resize(x.size());
    Ranks::of(r).to_host(found[r].data(), ranks.x[r].data(), ranks.x[r].bytes());
  }
  ASSERT_EQ(std::memcmp(found[0].data(), found[1].data(), x.size() * sizeof(float)), 0);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(found[0][i]) - expected[i]));
  // Sums of up to 2 times addends + 1 numbers below 32 in fp32, once each.
  EXPECT_LT(worst, 32 * 0x1p-24 * static_cast<double>(times * (2 * addends + 1)));
  expect_nothing_received(ranks);
}

TEST_F(AllReduceAdd, AddsTheSumsOfAllRanksToEach) {
  for (const int64_t rows : kNumbersOfRows)
    for (const int64_t addends : {1, 4}) expect_sums(rows, addends, 2880, 6);
  for (const int64_t width : {4, 64, 132}) expect_sums(7, 3, width, 5);
}

// Each rank has the addends of its own experts; what it has of the others is not to be read.
TEST_F(AllReduceAdd, LeavesOutExpertsOfOtherRanks) {
  for (const int64_t rows : {5, 70}) {
    constexpr int64_t kTopK = 4, kWidth = 64;
    Ranks ranks(rows, kTopK, kWidth);
    ranks.set_pass(1);
    for (size_t r = 0; r < kTwo; ++r) {
      std::vector<int32_t> ids(static_cast<size_t>(rows * kTopK));
      std::vector<float> parts(static_cast<size_t>(rows * kTopK * kWidth));
      for (size_t e = 0; e < ids.size(); ++e) {
        const bool mine = (e * e + e / 3) % 2 == r;
        ids[e]          = mine ? 7 : -1;
        std::fill_n(&parts[e * kWidth], kWidth, mine ? 1.0f : NAN);
      }
      ranks.ids[r] = {Ranks::of(r), static_cast<int64_t>(ids.size())};
      Ranks::of(r).to_device(ranks.ids[r].data(), ids.data(), ranks.ids[r].bytes());
      Ranks::of(r).to_device(ranks.parts[r].data(), parts.data(), ranks.parts[r].bytes());
      Ranks::of(r).set_words(ranks.x[r].data(), ranks.x[r].bytes(), 0);
    }
    ranks.on_each([&](size_t r) { ranks.all_reduce(r, rows, 0); });
    ranks.synchronize();
    for (size_t r = 0; r < kTwo; ++r) {
      std::vector<float> x(static_cast<size_t>(rows * kWidth));
      Ranks::of(r).to_host(x.data(), ranks.x[r].data(), ranks.x[r].bytes());
      for (const float each : x) ASSERT_EQ(each, 4.0f);  // every addend is one rank's
    }
  }
}

TEST_F(AllReduceAdd, OfNoRowsIsNothing) {
  Ranks ranks(1, 1, 64);
  ranks.set_pass(1);
  ranks.on_each([&](size_t r) { ranks.all_reduce(r, 0, 0); });
  ranks.synchronize();
}

// Two kinds of batches in turn, as the engine has them, in CUDA graphs that are replayed: the pass is the
// only thing that changes.
TEST_F(AllReduceAdd, WorksInGraphsThatAreReplayed) {
  constexpr int64_t kRows = 100, kWidth = 2880;
  Ranks ranks(kRows, 1, kWidth);
  std::array<std::unique_ptr<CudaGraph>, kTwo> few, many;
  const auto set_parts = [&](int number) {
    for (size_t r = 0; r < kTwo; ++r)
      Ranks::of(r).set_words(ranks.parts[r].data(), ranks.parts[r].bytes(),
                             std::bit_cast<uint32_t>(static_cast<float>(number)));
  };
  set_parts(0);
  int32_t passes = 0;
  for (const int64_t rows : {int64_t{5}, kRows}) {  // loads the kernels
    ranks.set_pass(++passes);
    ranks.on_each([&](size_t r) {
      for (int index = 0; index < 2; ++index) ranks.all_reduce(r, rows, index);
    });
    ranks.synchronize();
  }
  ranks.on_each([&](size_t r) {
    const auto both = [&, r](int64_t rows) {
      return [&, r, rows] {
        for (int index = 0; index < 2; ++index) ranks.all_reduce(r, rows, index);
        rank_barrier(ranks.peers[r],
                     {.pass = View<const int32_t, 1>(ranks.pass[r].view()), .index = 2, .count = 4},
                     Ranks::of(r).stream());
      };
    };
    few[r]  = std::make_unique<CudaGraph>(Ranks::of(r).stream(), both(5));
    many[r] = std::make_unique<CudaGraph>(Ranks::of(r).stream(), both(kRows));
  });
  for (size_t r = 0; r < kTwo; ++r) Ranks::of(r).set_words(ranks.x[r].data(), ranks.x[r].bytes(), 0);
  // Numbers of an earlier replay are others.
  float of_few = 0, of_many = 0;
  for (int replay = 1; replay <= 50; ++replay) {
    ranks.set_pass(++passes);
    set_parts(replay);
    (replay % 2 ? of_few : of_many) += static_cast<float>(2 * kTwo * replay);  // two all-reduces
    ranks.on_each([&](size_t r) { (replay % 2 ? few : many)[r]->launch(Ranks::of(r).stream()); });
    ranks.synchronize();
  }
  for (size_t r = 0; r < kTwo; ++r) {
    std::vector<float> x(static_cast<size_t>(kRows * kWidth));
    Ranks::of(r).to_host(x.data(), ranks.x[r].data(), ranks.x[r].bytes());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], i < 5 * kWidth ? of_few + of_many : of_many) << i;
  }
}

}  // namespace
}  // namespace fathom::kernels
