// The fused op on two GPUs that one thread drives, and on ranks that share a GPU, against sums in double and
// against the two ops that it fuses.
#include "kernels/collectives/all_reduce_rmsnorm.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"
#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "cuda/device_guard.h"
#include "cuda/graph.h"
#include "cuda/peer_access.h"
#include "kernels/collectives/all_reduce_add.h"
#include "kernels/norm/add_rmsnorm.h"
#include "kernels/norm/rmsnorm.h"

namespace fathom::kernels {
namespace {

constexpr float kEps = 1e-5f;

struct Extents {
  int64_t rows, addends, width;
};

// What a rank has at first, on the host. With `ids`, what it has of other ranks' experts is NaN.
struct RankInputs {
  std::vector<float> parts;
  std::vector<int32_t> ids;
};

// Each third number of a part is 0, every other of them -0, and addends 0 and 1 cancel in some columns: sums
// that are 0, which say by their bits that nothing has come.
std::vector<RankInputs> inputs_of(size_t ranks, const Extents& at, bool with_ids, uint64_t seed) {
  std::vector<RankInputs> all(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    RankInputs& of = all[r];
    of.parts.resize(static_cast<size_t>(at.rows * at.addends * at.width));
    if (with_ids) of.ids.resize(static_cast<size_t>(at.rows * at.addends));
    fill_normal(of.parts.data(), static_cast<int64_t>(of.parts.size()), seed + r, 0, 1);
    for (size_t i = 0; i < of.parts.size(); i += 3) of.parts[i] = i % 2 ? 0.0f : -0.0f;
    for (int64_t e = 1; e < at.rows * at.addends; e += at.addends)
      for (int64_t h = 0; at.addends > 1 && h < at.width; h += 5)
        of.parts[static_cast<size_t>(e * at.width + h)] =
            -of.parts[static_cast<size_t>((e - 1) * at.width + h)];
    for (size_t e = 0; e < of.ids.size(); ++e) {
      const bool mine = (e * e + e / 3) % ranks == r;
      of.ids[e]       = mine ? 7 : -1;
      if (!mine) std::fill_n(&of.parts[e * static_cast<size_t>(at.width)], at.width, NAN);
    }
  }
  return all;
}

// The reference: x += the sums of all ranks.
void add_sums(const std::vector<RankInputs>& ranks, const Extents& at, std::vector<double>& x) {
  for (const RankInputs& of : ranks)
    for (int64_t t = 0; t < at.rows; ++t)
      for (int64_t j = 0; j < at.addends; ++j) {
        const auto e = static_cast<size_t>(t * at.addends + j);
        if (!of.ids.empty() && of.ids[e] < 0) continue;
        for (int64_t h = 0; h < at.width; ++h)
          x[static_cast<size_t>(t * at.width + h)] +=
              static_cast<double>(of.parts[e * static_cast<size_t>(at.width) + static_cast<size_t>(h)]);
      }
}

struct Owned {
  Device* device   = nullptr;
  StreamRef stream = nullptr;
  DeviceBuffer<float> receive, parts, x, weight;
  DeviceBuffer<bf16> y;
  DeviceBuffer<int32_t> ids;
  PeerRows peers;
  bool has_ids = false;
};

// Ranks with memory for calls of up to `most`.
class NormedRanks {
 public:
  NormedRanks(const std::vector<Device*>& devices, const std::vector<StreamRef>& streams, const Extents& most)
      : most_(most), ranks_(devices.size()), weight_(static_cast<size_t>(most.width)) {
    fill_uniform(weight_.data(), most.width, 3, 0.5, 1.5);
    for (size_t r = 0; r < size(); ++r) {
      Owned& of      = ranks_[r];
      Device& device = *devices[r];
      of.device = &device, of.stream = streams[r];
      of.peers   = {.rank     = static_cast<int>(r),
                    .ranks    = static_cast<int>(size()),
                    .max_rows = most.rows,
                    .width    = most.width,
                    .receive  = {}};
      of.receive = {device, of.peers.numbers()};
      of.parts   = {device, most.rows * most.addends * most.width};
      of.ids     = {device, most.rows * most.addends};
      of.x       = {device, most.rows * most.width};
      of.y       = {device, most.rows * most.width};
      of.weight  = {device, most.width};
      device.set_words(of.receive.data(), of.receive.bytes(), 0);
      device.to_device(of.weight.data(), weight_.data(), of.weight.bytes());
    }
    for (Owned& of : ranks_)
      for (size_t q = 0; q < size(); ++q) of.peers.receive[q] = ranks_[q].receive.data();
  }

  size_t size() const { return ranks_.size(); }
  Owned& operator[](size_t r) { return ranks_[r]; }
  const std::vector<float>& weight() const { return weight_; }

  void set(const std::vector<RankInputs>& inputs) {
    for (size_t r = 0; r < size(); ++r) {
      Owned& of = ranks_[r];
      of.device->to_device(of.parts.data(), inputs[r].parts.data(),
                           static_cast<int64_t>(inputs[r].parts.size() * sizeof(float)));
      of.has_ids = !inputs[r].ids.empty();
      if (of.has_ids)
        of.device->to_device(of.ids.data(), inputs[r].ids.data(),
                             static_cast<int64_t>(inputs[r].ids.size() * sizeof(int32_t)));
    }
  }
  void set_x(const std::vector<float>& x) {
    for (Owned& of : ranks_)
      of.device->to_device(of.x.data(), x.data(), static_cast<int64_t>(x.size() * sizeof(float)));
  }
  View<const float, 3> parts(size_t r, const Extents& at) const {
    return View<const float, 3>(ranks_[r].parts.as({at.rows, at.addends, at.width}));
  }
  View<const int32_t, 2> ids(size_t r, const Extents& at) const {
    if (!ranks_[r].has_ids) return View<const int32_t, 2>(nullptr, {0, 0});
    return View<const int32_t, 2>(ranks_[r].ids.as({at.rows, at.addends}));
  }
  template <class F>
  void on_each(F&& f) {
    for (size_t r = 0; r < size(); ++r) {
      const DeviceGuard current(ranks_[r].device->id());
      f(r);
    }
  }
  void call(size_t r, const Extents& at, int half) {
    Owned& of = ranks_[r];
    all_reduce_rmsnorm(parts(r, at), ids(r, at), of.peers, half, of.x.as({at.rows, at.width}),
                       View<const float, 1>(of.weight.view()), kEps, of.y.as({at.rows, at.width}), of.stream);
  }
  void call_all(const Extents& at, int half) {
    on_each([&](size_t r) { call(r, at, half); });
    synchronize();
  }
  void synchronize() {
    for (Owned& of : ranks_) of.device->synchronize();
  }
  template <class T>
  std::vector<T> read(size_t r, const DeviceBuffer<T>& buffer, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    if (count > 0)
      ranks_[r].device->to_host(values.data(), buffer.data(), count * static_cast<int64_t>(sizeof(T)));
    return values;
  }
  std::vector<float> x(size_t r, int64_t rows) const { return read(r, ranks_[r].x, rows * most_.width); }
  std::vector<bf16> y(size_t r, int64_t rows) const { return read(r, ranks_[r].y, rows * most_.width); }
  // As it was before the first call, or a later one would take old numbers for new ones.
  void expect_nothing_received() const {
    for (size_t r = 0; r < size(); ++r) {
      const auto left = read(r, ranks_[r].receive, ranks_[r].receive.size());
      for (size_t i = 0; i < left.size(); ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(left[i]), 0u) << "rank " << r << " at " << i;
    }
  }

 private:
  Extents most_;
  std::vector<Owned> ranks_;
  std::vector<float> weight_;
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Calls one after another, of the numbers of rows given, into the same x. Each y is the norm of its x.
void expect_normed_sums(NormedRanks& ranks, const std::vector<int64_t>& rows_of_calls, int64_t addends,
                        int64_t width, bool with_ids) {
  SCOPED_TRACE(testing::Message() << addends << " x " << width << (with_ids ? " with ids" : ""));
  const int64_t most = *std::max_element(rows_of_calls.begin(), rows_of_calls.end());
  std::vector<float> x(static_cast<size_t>(most * width));
  fill_normal(x.data(), most * width, 99, 0, 1);
  std::vector<double> sums(x.begin(), x.end());
  ranks.set_x(x);
  for (size_t n = 0; n < rows_of_calls.size(); ++n) {
    const Extents at{rows_of_calls[n], addends, width};
    SCOPED_TRACE(testing::Message() << "call " << n << " of " << at.rows << " rows");
    const auto inputs = inputs_of(ranks.size(), at, with_ids, 1000 + 100 * n);
    ranks.set(inputs);
    ranks.call_all(at, static_cast<int>(n % 2));
    add_sums(inputs, at, sums);
    const auto found = ranks.x(0, at.rows);
    const auto y     = ranks.y(0, at.rows);
    for (size_t r = 1; r < ranks.size(); ++r) {
      ASSERT_TRUE(same_bits(found, ranks.x(r, at.rows))) << "rank " << r;
      ASSERT_TRUE(same_bits(y, ranks.y(r, at.rows))) << "rank " << r;
    }
    // Sums of ranks times addends + 1 numbers below 32 a call, once each in fp32.
    const double bound =
        32 * 0x1p-24 * static_cast<double>((n + 1) * (ranks.size() * static_cast<size_t>(addends) + 1));
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_LE(std::abs(static_cast<double>(found[i]) - sums[i]), bound) << "at " << i;
    // As in add_rmsnorm_test: roundings of fp32, then half an ulp of bf16.
    std::vector<float> expected(found.size());
    rmsnorm_reference({found.data(), {at.rows, width}}, {ranks.weight().data(), {width}},
                      static_cast<double>(kEps), {expected.data(), {at.rows, width}}, {});
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_LE(std::abs(static_cast<float>(y[i]) - expected[i]),
                (0x1p-8 + 16 * 0x1p-24) * std::abs(expected[i]))
          << "at " << i;
  }
  ranks.expect_nothing_received();
}

class AllReduceRmsnorm : public testing::Test {
 protected:
  static constexpr std::array<DeviceId, 2> kDevices = {DeviceId{0}, DeviceId{1}};

  void SetUp() override {
    if (const Status can = can_access_peers(kDevices); !can) GTEST_SKIP() << can.error().message;
    enable_peer_access(kDevices);
  }
  static NormedRanks two(const Extents& most) {
    std::vector<Device*> devices;
    std::vector<StreamRef> streams;
    for (const DeviceId id : kDevices) {
      devices.push_back(&device(id));
      streams.push_back(device(id).stream());
    }
    return {devices, streams, most};
  }
};

// More rows than clusters fit at once, fewer, and the same again: what a call of many rows left must not be
// in one of few.
TEST_F(AllReduceRmsnorm, AddsTheSumsAndNormalizes) {
  for (const int64_t addends : {1, 4}) {
    for (const std::vector<int64_t>& rows : {std::vector<int64_t>{1, 1, 1, 1, 1},
                                             {2, 3, 7, 1, 8},
                                             {31, 32, 33, 63, 64, 65},
                                             {127, 128, 1, 257},
                                             {1000, 2, 1009, 1, 1000}}) {
      NormedRanks ranks = two({*std::max_element(rows.begin(), rows.end()), addends, 2880});
      ASSERT_NO_FATAL_FAILURE(expect_normed_sums(ranks, rows, addends, 2880, addends == 4));
    }
    for (const int64_t width : {4, 64, 132, 768, 772, 3072}) {
      NormedRanks ranks = two({7, addends, width});
      ASSERT_NO_FATAL_FAILURE(expect_normed_sums(ranks, {7, 1, 5}, addends, width, addends == 4));
    }
  }
}

TEST_F(AllReduceRmsnorm, HasTheBitsOfTheTwoOpsThatItFuses) {
  for (const auto& [rows, addends] : {std::pair<int64_t, int64_t>{1, 1}, {1, 4}, {9, 4}, {64, 1}, {300, 4}})
    for (const int64_t width : {320, 2880}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << addends << " x " << width);
      const Extents at{rows, addends, width};
      NormedRanks ranks = two(at);
      std::vector<float> x(static_cast<size_t>(rows * width));
      fill_normal(x.data(), rows * width, 99, 0, 1);
      for (size_t i = 0; i < x.size(); i += 7) x[i] = -0.0f;
      ranks.set(inputs_of(ranks.size(), at, addends == 4, 5));

      ranks.set_x(x);
      const ReceiveBuffer layout{.ranks = 2, .max_rows = rows, .width = width};
      std::array<DeviceBuffer<std::byte>, 2> receive;
      std::array<DeviceBuffer<int32_t>, 2> pass;
      const int32_t one = 1;
      for (size_t r = 0; r < 2; ++r) {
        receive[r] = {*ranks[r].device, layout.bytes()};
        pass[r]    = {*ranks[r].device, 1};
        ranks[r].device->set_words(receive[r].data(), receive[r].bytes(), 0);
        ranks[r].device->to_device(pass[r].data(), &one, 4);
      }
      ranks.on_each([&](size_t r) {
        Peers peers{.rank = static_cast<int>(r), .layout = layout, .receive = {}};
        for (size_t q = 0; q < 2; ++q) peers.receive[q] = receive[q].data();
        all_reduce_add(ranks.parts(r, at), ranks.ids(r, at), peers,
                       {.pass = View<const int32_t, 1>(pass[r].view()), .index = 0, .count = 2},
                       ranks[r].x.as({rows, width}), ranks[r].stream);
      });
      ranks.synchronize();  // before add_rmsnorm is loaded, which may wait for the GPU
      ranks.on_each([&](size_t r) {
        add_rmsnorm(ranks[r].x.as({rows, width}), View<const float, 3>(nullptr, {0, 1, width}),
                    View<const float, 1>(ranks[r].weight.view()), kEps, ranks[r].y.as({rows, width}),
                    ranks[r].stream);
      });
      ranks.synchronize();
      const auto x_apart = ranks.x(0, rows);
      const auto y_apart = ranks.y(0, rows);

      ranks.set_x(x);
      for (size_t r = 0; r < 2; ++r) ranks[r].device->set_words(ranks[r].y.data(), ranks[r].y.bytes(), 0);
      ranks.call_all(at, 0);
      for (size_t r = 0; r < 2; ++r) {
        EXPECT_TRUE(same_bits(ranks.x(r, rows), x_apart)) << r;
        EXPECT_TRUE(same_bits(ranks.y(r, rows), y_apart)) << r;
      }
    }
}

TEST_F(AllReduceRmsnorm, OfNoRowsIsNothing) {
  NormedRanks ranks = two({1, 1, 64});
  ranks.call_all({0, 1, 64}, 0);
  ranks.expect_nothing_received();
}

// Two kinds of batches in turn, in CUDA graphs that are replayed without a wait in between; nothing but the
// parts changes.
TEST_F(AllReduceRmsnorm, WorksInGraphsThatAreReplayed) {
  constexpr Extents kFew{5, 1, 2880}, kMany{700, 1, 2880};
  NormedRanks ranks    = two(kMany);
  const auto set_parts = [&](int number) {
    for (size_t r = 0; r < 2; ++r)
      ranks[r].device->set_words(ranks[r].parts.data(), ranks[r].parts.bytes(),
                                 std::bit_cast<uint32_t>(static_cast<float>(number)));
  };
  set_parts(0);
  for (const Extents& at : {kFew, kMany})  // loads the kernel
    for (const int half : {0, 1}) ranks.call_all(at, half);
  std::array<std::unique_ptr<CudaGraph>, 2> few, many;
  ranks.on_each([&](size_t r) {
    const auto both = [&ranks, r](const Extents& at) {
      return [&ranks, r, at] {
        for (const int half : {0, 1}) ranks.call(r, at, half);
      };
    };
    few[r]  = std::make_unique<CudaGraph>(ranks[r].stream, both(kFew));
    many[r] = std::make_unique<CudaGraph>(ranks[r].stream, both(kMany));
  });
  ranks.set_x(std::vector<float>(static_cast<size_t>(kMany.rows * kMany.width)));
  float of_few = 0, of_many = 0;
  for (int replay = 1; replay <= 50; ++replay) {
    set_parts(replay);
    of_few += static_cast<float>(2 * 2 * replay);  // two calls, two ranks
    of_many += static_cast<float>(2 * 2 * replay);
    ranks.on_each([&](size_t r) { few[r]->launch(ranks[r].stream); });
    ranks.on_each([&](size_t r) { many[r]->launch(ranks[r].stream); });
    ranks.synchronize();
  }
  for (size_t r = 0; r < 2; ++r) {
    const auto x = ranks.x(r, kMany.rows);
    const auto y = ranks.y(r, kMany.rows);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i], i < static_cast<size_t>(kFew.rows * kFew.width) ? of_few + of_many : of_many) << i;
      // All numbers of a row are equal, so that the norm is 1, but for the rounding of the mean.
      const float weight = ranks.weight()[i % static_cast<size_t>(kMany.width)];
      ASSERT_LE(std::abs(static_cast<float>(y[i]) - weight), (0x1p-8f + 16 * 0x1p-24f) * weight) << i;
    }
  }
  ranks.expect_nothing_received();
}

// The launcher looks at extents before anything else: no GPU is needed.
TEST(AllReduceRmsnormContract, ShapesThatDoNotFitAreBroken) {
  alignas(16) float numbers[8] = {};
  alignas(16) bf16 y[8];
  struct Call {
    int64_t rows = 1, width = 8, addends = 1, of_weight = 8, max_rows = 4, peers_width = 8;
    int ranks = 2, rank = 0, half = 0;
    float eps = kEps;
  };
  const auto call = [&](const Call& c) {
    all_reduce_rmsnorm(
        {numbers, {c.rows, c.addends, c.width}}, {nullptr, {0, 0}},
        {.rank = c.rank, .ranks = c.ranks, .max_rows = c.max_rows, .width = c.peers_width, .receive = {}},
        c.half, {numbers, {c.rows, c.width}}, {numbers, {c.of_weight}}, c.eps, {y, {c.rows, c.width}},
        nullptr);
  };
  EXPECT_NO_THROW(call({.rows = 0}));
  EXPECT_THROW(call({.rows = 0, .ranks = 1}), ContractError);
  EXPECT_THROW(call({.rows = 0, .ranks = 9}), ContractError);
  EXPECT_THROW(call({.rows = 0, .rank = 2}), ContractError);
  EXPECT_THROW(call({.rows = 0, .half = 2}), ContractError);
  EXPECT_THROW(call({.rows = 5}), ContractError);
  EXPECT_THROW(call({.rows = 0, .of_weight = 4}), ContractError);
  EXPECT_THROW(call({.rows = 0, .peers_width = 4}), ContractError);
  EXPECT_THROW(call({.rows = 0, .width = 6, .of_weight = 6, .peers_width = 6}), ContractError);
  EXPECT_THROW(call({.rows = 0, .width = 3076, .of_weight = 3076, .peers_width = 3076}), ContractError);
  EXPECT_THROW(call({.rows = 0, .eps = 0}), ContractError);
}

TEST(AllReduceRmsnormCost, IsThatOfTheTwoOpsButForTheSecondLoadOfX) {
  constexpr int64_t kRows = 7, kParts = 4, kWidth = 2880, kRanks = 3;
  const Cost apart = all_reduce_add_cost(kRows, kParts, kWidth, kRanks) + add_rmsnorm_cost(kRows, kWidth, 0);
  const Cost fused = all_reduce_rmsnorm_cost(kRows, kParts, kWidth, kRanks);
  EXPECT_EQ(fused.read, apart.read - 4 * kRows * kWidth);
  EXPECT_EQ(fused.written, apart.written);
  EXPECT_EQ(fused.flops, apart.flops);
}

// Three and four ranks, with a stream of one GPU for each: so few CTAs that all of them run at once.
TEST(AllReduceRmsnormOnOneGpu, RanksMayShareAGpu) {
  Device* const gpu = find_device({0});
  if (!gpu) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  struct Streams {
    std::vector<StreamRef> all;
    ~Streams() {
      for (const StreamRef stream : all) (void)cudaStreamDestroy(stream);
    }
  } streams;
  const DeviceGuard current(DeviceId{0});
  for (int r = 0; r < 4; ++r) {
    StreamRef stream = nullptr;
    FATHOM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    streams.all.push_back(stream);
  }
  {
    // Loads the kernel, which could wait for a GPU that waits for a rank to come: two ranks in one memory, of
    // which the other one's numbers are there already.
    NormedRanks alone({gpu}, {gpu->stream()}, {1, 1, 64});
    Owned& me = alone[0];
    DeviceBuffer<float> receive(*gpu, 2 * 2 * 64);
    gpu->set_words(receive.data(), receive.bytes(), std::bit_cast<uint32_t>(1.0f));
    me.peers.ranks      = 2;
    me.peers.receive[0] = me.peers.receive[1] = receive.data();
    gpu->set_words(me.parts.data(), me.parts.bytes(), std::bit_cast<uint32_t>(2.0f));
    gpu->set_words(me.x.data(), me.x.bytes(), 0);
    alone.call(0, {1, 1, 64}, 0);
    gpu->synchronize();
    for (const float x : alone.x(0, 1)) ASSERT_EQ(x, 3.0f);
  }
  for (const size_t ranks : {size_t{3}, size_t{4}}) {
    NormedRanks sharing(std::vector<Device*>(ranks, gpu),
                        {streams.all.begin(), streams.all.begin() + static_cast<std::ptrdiff_t>(ranks)},
                        {13, 4, 2880});
    ASSERT_NO_FATAL_FAILURE(expect_normed_sums(sharing, {1, 13, 2, 7, 1}, 4, 2880, true));
  }
}

}  // namespace
}  // namespace fathom::kernels
