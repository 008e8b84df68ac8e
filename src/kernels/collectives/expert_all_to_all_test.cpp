// Dispatch and combine of two GPUs that one thread drives, against a reference on the host, to the bit.
#include "kernels/collectives/expert_all_to_all.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"
#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "cuda/device_guard.h"
#include "cuda/graph.h"
#include "cuda/peer_access.h"

namespace fathom::kernels {
namespace {

constexpr int kTwo                            = 2;
constexpr std::array<DeviceId, kTwo> kDevices = {DeviceId{0}, DeviceId{1}};
constexpr uint32_t kUntouched                 = 0x7fffffff;  // NaN as fp32 and as two bf16
constexpr std::array kProtocols               = {AllToAllProtocol::low_latency, AllToAllProtocol::simple};

struct Shape {
  int64_t tokens, top_k, experts_per_rank, width;

  int64_t rows() const { return kTwo * tokens; }  // tokens of both ranks
};

// What goes into a dispatch and a combine on each rank.
struct Inputs {
  std::array<std::vector<bf16>, kTwo> x;
  std::array<std::vector<int32_t>, kTwo> experts;
  std::array<std::vector<float>, kTwo> weights, parts, residual;
};

// What they leave on each rank.
struct Results {
  std::array<std::vector<bf16>, kTwo> sorted;
  std::array<std::vector<int32_t>, kTwo> offsets, sorted_ids, experts;
  std::array<std::vector<float>, kTwo> weights, residual;
};

// Which experts tokens choose: all alike, hardly any of rank 1, or one in three slots empty.
enum class Routing { even, skewed, padded };

Inputs inputs(const Shape& s, Routing routing, uint64_t seed) {
  std::mt19937_64 random(seed);
  Inputs in;
  for (size_t r = 0; r < kTwo; ++r) {
    for (int64_t i = 0; i < s.tokens * s.width; ++i)
      in.x[r].push_back(bf16::from_bits(static_cast<uint32_t>(random())));
    for (int64_t i = 0; i < s.tokens * s.top_k; ++i) {
      const auto any  = static_cast<int32_t>(random() % static_cast<uint64_t>(kTwo * s.experts_per_rank));
      const auto odds = random() % 12;
      in.experts[r].push_back(routing == Routing::skewed && odds > 0
                                  ? any % static_cast<int32_t>(s.experts_per_rank)
                              : routing == Routing::padded && odds < 4 ? -1
                                                                       : any);
    }
    const auto uniform = [&](int64_t n) {
      std::vector<float> numbers(static_cast<size_t>(n));
      fill_uniform(numbers.data(), n, random(), -1, 1);
      return numbers;
    };
    in.weights[r]  = uniform(s.tokens * s.top_k);
    in.parts[r]    = uniform(s.rows() * s.top_k * s.width);
    in.residual[r] = uniform(s.tokens * s.width);
  }
  return in;
}

// The reference. Parts that no rank asked for are NaN from here on: nobody may read them.
Results expected(const Shape& s, Inputs& in) {
  Results out;
  const auto E        = static_cast<int32_t>(s.experts_per_rank);
  const int64_t slots = s.rows() * s.top_k;
  for (size_t r = 0; r < kTwo; ++r) {
    for (int64_t id = 0; id < slots; ++id) {
      const auto q        = static_cast<size_t>(id * kTwo / slots);
      const auto i        = static_cast<size_t>(id % (s.tokens * s.top_k));
      const int32_t local = in.experts[q][i] - static_cast<int32_t>(r) * E;
      const bool here     = in.experts[q][i] >= 0 && local >= 0 && local < E;
      out.experts[r].push_back(here ? local : -1);
      out.weights[r].push_back(here ? in.weights[q][i] : 0);
      if (!here)
        std::fill_n(in.parts[r].begin() + id * s.width, s.width, std::numeric_limits<float>::quiet_NaN());
    }
    for (int32_t e = 0; e <= E; ++e) {
      out.offsets[r].push_back(static_cast<int32_t>(out.sorted_ids[r].size()));
      for (int64_t id = 0; e < E && id < slots; ++id) {
        if (out.experts[r][static_cast<size_t>(id)] != e) continue;
        out.sorted_ids[r].push_back(static_cast<int32_t>(id));
        const int64_t row = id / s.top_k, q = row / s.tokens, t = row % s.tokens;
        const auto from = in.x[static_cast<size_t>(q)].begin() + t * s.width;
        out.sorted[r].insert(out.sorted[r].end(), from, from + s.width);
      }
    }
  }
  for (size_t r = 0; r < kTwo; ++r) {
    out.residual[r] = in.residual[r];
    for (int64_t t = 0; t < s.tokens; ++t)
      for (int64_t h = 0; h < s.width; ++h) {
        float sum_of_ranks = 0;
        for (size_t q = 0; q < kTwo; ++q) {
          float sum = 0;
          for (int64_t k = 0; k < s.top_k; ++k) {
            const int64_t id = (static_cast<int64_t>(r) * s.tokens + t) * s.top_k + k;
            if (out.experts[q][static_cast<size_t>(id)] >= 0)
              sum += in.parts[q][static_cast<size_t>(id * s.width + h)];
          }
          sum_of_ranks += static_cast<float>(bf16(sum));
        }
        out.residual[r][static_cast<size_t>(t * s.width + h)] += sum_of_ranks;
      }
  }
  return out;
}

// The memory of both ranks, for calls of up to so many tokens.
class Ranks {
 public:
  explicit Ranks(const Shape& most)
      : layout_{.ranks = kTwo, .max_tokens = std::max<int64_t>(most.tokens, 1), .width = most.width},
        most_(most) {
    for (size_t r = 0; r < kTwo; ++r) {
      Device& device      = of(r);
      Rank& rank          = ranks_[r];
      const int64_t slots = most.tokens * most.top_k, all = kTwo * slots;
      rank.receive    = {device, layout_.bytes()};
      rank.pass       = {device, 1};
      rank.x          = {device, most.tokens * most.width};
      rank.experts    = {device, slots};
      rank.weights    = {device, slots};
      rank.parts      = {device, all * most.width};
      rank.residual   = {device, most.tokens * most.width};
      rank.sorted     = {device, all * most.width};
      rank.offsets    = {device, most.experts_per_rank + 1};
      rank.sorted_ids = {device, all};
      rank.dispatched = {device, all};
      rank.received   = {device, all};
      device.set_words(rank.receive.data(), rank.receive.bytes(), 0);
    }
    for (size_t r = 0; r < kTwo; ++r) {
      ranks_[r].peers = {
          .rank = static_cast<int>(r), .experts_per_rank = most.experts_per_rank, .layout = layout_};
      for (size_t q = 0; q < kTwo; ++q) ranks_[r].peers.receive[q] = ranks_[q].receive.data();
    }
  }

  static Device& of(size_t r) { return device(kDevices[r]); }
  void set_pass(int32_t number) {
    for (size_t r = 0; r < kTwo; ++r) of(r).to_device(ranks_[r].pass.data(), &number, 4);
  }
  void set(const Inputs& in) {
    for (size_t r = 0; r < kTwo; ++r) {
      const Rank& rank = ranks_[r];
      write(r, rank.x, in.x[r]);
      write(r, rank.experts, in.experts[r]);
      write(r, rank.weights, in.weights[r]);
      write(r, rank.parts, in.parts[r]);
      write(r, rank.residual, in.residual[r]);
      for (const auto& poison : {std::pair<void*, int64_t>{rank.sorted.data(), rank.sorted.bytes()},
                                 {rank.offsets.data(), rank.offsets.bytes()},
                                 {rank.sorted_ids.data(), rank.sorted_ids.bytes()},
                                 {rank.dispatched.data(), rank.dispatched.bytes()},
                                 {rank.received.data(), rank.received.bytes()}})
        if (poison.second > 0) of(r).set_words(poison.first, poison.second, kUntouched);
    }
  }

  // Both ranks get a dispatch before either gets the combine that follows: one thread launches, and CUDA may
  // wait for a GPU before it loads a kernel.
  void exchange(int64_t tokens, int index, AllToAllProtocol protocol) {
    on_each([&](size_t r) { dispatch(r, tokens, index, protocol); });
    on_each([&](size_t r) { combine(r, tokens, index, protocol); });
  }
  void dispatch(size_t r, int64_t tokens, int index, AllToAllProtocol protocol) {
    const Rank& rank = ranks_[r];
    const int64_t K = most_.top_k, rows = kTwo * tokens;
    expert_dispatch(View<const bf16, 2>(rank.x.as({tokens, most_.width})),
                    View<const int32_t, 2>(rank.experts.as({tokens, K})),
                    View<const float, 2>(rank.weights.as({tokens, K})), rank.peers, call(r, index),
                    {.sorted     = rank.sorted.as({rows * K, most_.width}),
                     .offsets    = rank.offsets.view(),
                     .sorted_ids = rank.sorted_ids.as({rows * K}),
                     .experts    = rank.dispatched.as({rows, K}),
                     .weights    = rank.received.as({rows, K})},
                    protocol, of(r).stream());
  }
  void combine(size_t r, int64_t tokens, int index, AllToAllProtocol protocol) {
    const Rank& rank = ranks_[r];
    const int64_t K  = most_.top_k;
    expert_combine_add(View<const float, 3>(rank.parts.as({kTwo * tokens, K, most_.width})),
                       View<const int32_t, 2>(rank.dispatched.as({kTwo * tokens, K})),
                       View<const int32_t, 2>(rank.experts.as({tokens, K})), rank.peers, call(r, index),
                       rank.residual.as({tokens, most_.width}), protocol, of(r).stream());
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

  // After all kernels: as long as the reference, and nothing was written beyond.
  void expect(const Results& want) {
    synchronize();
    for (size_t r = 0; r < kTwo; ++r) {
      SCOPED_TRACE(testing::Message() << "rank " << r);
      const Rank& rank = ranks_[r];
      ASSERT_EQ(read(r, rank.offsets, want.offsets[r].size()), want.offsets[r]);
      ASSERT_EQ(read(r, rank.dispatched, want.experts[r].size()), want.experts[r]);
      ASSERT_EQ(read(r, rank.sorted_ids, want.sorted_ids[r].size()), want.sorted_ids[r]);
      ASSERT_EQ(read(r, rank.received, want.weights[r].size()), want.weights[r]);
      const std::vector<bf16> sorted = read(r, rank.sorted, static_cast<size_t>(rank.sorted.size()));
      for (size_t i = 0; i < sorted.size(); ++i) {
        const uint32_t poison = i % 2 == 0 ? kUntouched & 0xffff : kUntouched >> 16;
        ASSERT_EQ(sorted[i].bits, i < want.sorted[r].size() ? want.sorted[r][i].bits : poison) << i;
      }
      const std::vector<float> residual = read(r, rank.residual, want.residual[r].size());
      for (size_t i = 0; i < residual.size(); ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(residual[i]), std::bit_cast<uint32_t>(want.residual[r][i]))
            << i << ": " << residual[i] << ", not " << want.residual[r][i];
    }
  }

 private:
  struct Rank {
    DeviceBuffer<std::byte> receive;
    DeviceBuffer<int32_t> pass, experts, offsets, sorted_ids, dispatched;
    DeviceBuffer<bf16> x, sorted;
    DeviceBuffer<float> weights, received, parts, residual;
    AllToAllPeers peers;
  };

  AllToAllCall call(size_t r, int index) const {
    return {.pass = View<const int32_t, 1>(ranks_[r].pass.view()), .index = index, .count = 4};
  }
  template <class T>
  static void write(size_t r, const DeviceBuffer<T>& to, const std::vector<T>& from) {
    if (!from.empty()) of(r).to_device(to.data(), from.data(), static_cast<int64_t>(from.size() * sizeof(T)));
  }
  template <class T>
  static std::vector<T> read(size_t r, const DeviceBuffer<T>& from, size_t size) {
    std::vector<T> to(size);
    if (size > 0) of(r).to_host(to.data(), from.data(), static_cast<int64_t>(size * sizeof(T)));
    return to;
  }

  AllToAllBuffer layout_;
  Shape most_;
  std::array<Rank, kTwo> ranks_;
};

class ExpertAllToAll : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status can = can_access_peers(kDevices); !can) GTEST_SKIP() << can.error().message;
    enable_peer_access(kDevices);
  }
};

// Several exchanges of other inputs through the same buffers, which still hold what came before.
void expect_exchanges(const Shape& s, int times, AllToAllProtocol protocol) {
  SCOPED_TRACE(testing::Message() << s.tokens << " tokens, top " << s.top_k << " of " << kTwo << " x "
                                  << s.experts_per_rank << ", width " << s.width << ", "
                                  << (protocol == AllToAllProtocol::simple ? "simple" : "low latency"));
  Ranks ranks(s);
  for (int n = 0; n < times; ++n) {
    const auto routing = static_cast<Routing>(n % 3);
    Inputs in          = inputs(s, routing, 100 + static_cast<uint64_t>(n));
    const Results want = expected(s, in);
    if (n % 4 == 0) ranks.set_pass(1 + n / 4);
    ranks.set(in);
    ranks.synchronize();
    ranks.exchange(s.tokens, n % 4, protocol);
    ranks.expect(want);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_F(ExpertAllToAll, RowsGoToTheirExpertsAndResultsComeBack) {
  for (const AllToAllProtocol protocol : kProtocols) {
    for (const int64_t tokens : {1, 2, 3, 31, 32, 33, 127, 257})
      for (const int64_t top_k : {1, 4}) {
        expect_exchanges({tokens, top_k, 16, 2880}, 4, protocol);
        if (HasFatalFailure()) return;
      }
    for (const int64_t width : {8, 64, 264, 3064, 3072, 3080}) {  // 384 vectors at once: 8 * 382, and beyond
      expect_exchanges({7, 4, 16, width}, 5, protocol);
      if (HasFatalFailure()) return;
    }
    for (const int64_t experts : {1, 3, 31, 32, 33, 127, 128})
      for (const int64_t top_k : {3, 5, 8}) {
        expect_exchanges({37, top_k, experts, 64}, 4, protocol);
        if (HasFatalFailure()) return;
      }
  }
}

// More rows than CTAs that fit at once: each takes several.
TEST_F(ExpertAllToAll, TakesMoreRowsThanFitAtOnce) {
  expect_exchanges({512, 4, 16, 264}, 3, AllToAllProtocol::low_latency);
  expect_exchanges({2048, 2, 16, 64}, 3, AllToAllProtocol::simple);
}

// Nothing is left of a batch with rows where one without comes after it.
TEST_F(ExpertAllToAll, OfNoTokensIsNothing) {
  constexpr int64_t kTokens = 5;
  const Shape some{kTokens, 2, 4, 64}, none{0, 2, 4, 64};
  Ranks ranks(some);
  ranks.set_pass(1);
  Inputs in           = inputs(some, Routing::even, 1);
  const Results first = expected(some, in);
  Inputs empty        = inputs(none, Routing::even, 1);
  Results zero        = expected(none, empty);
  for (int index = 0; index < 4; ++index) {
    ranks.set(in);
    ranks.synchronize();
    ranks.exchange(index % 2 == 0 ? kTokens : 0, index, AllToAllProtocol::low_latency);
    ranks.expect(index % 2 == 0 ? first : zero);
    if (HasFatalFailure()) return;
  }
}

// As in the layers of a forward pass: many exchanges in a graph, in lockstep by nothing but themselves, with
// protocols in turn. Only the pass and the inputs change between replays.
TEST_F(ExpertAllToAll, WorksInGraphsThatAreReplayed) {
  const Shape s{100, 4, 16, 2880};
  constexpr int kExchanges = 4;
  Ranks ranks(s);
  int32_t passes     = 0;
  const auto replays = [&](const std::function<void()>& run) {
    Inputs in = inputs(s, static_cast<Routing>(passes % 3), 7 + static_cast<uint64_t>(passes));
    const std::array<std::vector<float>, kTwo> residual = in.residual;
    Results want                                        = expected(s, in);
    for (int n = 1; n < kExchanges; ++n) {  // each adds to what the one before left
      Inputs again   = in;
      again.residual = want.residual;
      want.residual  = expected(s, again).residual;
    }
    ranks.set_pass(++passes);
    ranks.set(in);
    ranks.synchronize();
    run();
    ranks.expect(want);
  };
  replays([&] {  // loads the kernels
    for (int index = 0; index < kExchanges; ++index) ranks.exchange(s.tokens, index, kProtocols[index % 2]);
  });
  std::array<std::unique_ptr<CudaGraph>, kTwo> graphs;
  ranks.on_each([&](size_t r) {
    graphs[r] = std::make_unique<CudaGraph>(Ranks::of(r).stream(), [&, r] {
      for (int index = 0; index < kExchanges; ++index) {
        ranks.dispatch(r, s.tokens, index, kProtocols[index % 2]);
        ranks.combine(r, s.tokens, index, kProtocols[index % 2]);
      }
    });
  });
  for (int replay = 0; replay < 6 && !HasFatalFailure(); ++replay)
    replays([&] { ranks.on_each([&](size_t r) { graphs[r]->launch(Ranks::of(r).stream()); }); });
}

TEST_F(ExpertAllToAll, BrokenContractsAreNamed) {
  const Shape s{4, 2, 4, 64};
  Ranks ranks(s);
  const DeviceGuard current(kDevices[0]);
  EXPECT_THROW(ranks.dispatch(0, 4, 4, AllToAllProtocol::simple), ContractError);  // beyond the count
  EXPECT_THROW(ranks.combine(0, 4, -1, AllToAllProtocol::simple), ContractError);
  Ranks wide({4, 2, 4, 68});  // not vectors of 16 bytes
  EXPECT_THROW(wide.dispatch(0, 4, 0, AllToAllProtocol::simple), ContractError);
  Ranks many({513, 1, 4, 8});
  EXPECT_THROW(many.dispatch(0, 513, 0, AllToAllProtocol::low_latency), ContractError);
  Ranks chosen({2, 9, 16, 8});
  EXPECT_THROW(chosen.dispatch(0, 2, 0, AllToAllProtocol::simple), ContractError);
  Ranks numerous({2, 2, 129, 8});
  EXPECT_THROW(numerous.dispatch(0, 2, 0, AllToAllProtocol::simple), ContractError);
}

// On any machine: what ranks send lies apart in the buffer, all of it within.
TEST(AllToAllBuffer, AreasLieApart) {
  for (const int64_t ranks : {2, 3, 8})
    for (const int64_t tokens : {1, 63, 512, 700})
      for (const int64_t width : {8, 2880}) {
        const AllToAllBuffer b{.ranks = ranks, .max_tokens = tokens, .width = width};
        const int64_t low_latency = std::min(tokens, kLowLatencyTokens);
        std::vector<std::pair<int64_t, int64_t>> areas;  // begin, bytes
        for (int64_t r = 0; r < ranks; ++r) {
          for (int half = 0; half < 2; ++half) {
            areas.emplace_back(b.experts(half, r), 16 * tokens);
            areas.emplace_back(b.row_flags(half, r), 4 * tokens);
            areas.emplace_back(b.low_latency_rows(half, r), 2 * (2 * width + 32) * low_latency);
            areas.emplace_back(b.rows(half, r), (2 * width + 32) * tokens);
          }
          areas.emplace_back(b.sum_flags(r), 4 * tokens);
          areas.emplace_back(b.low_latency_sums(r), 2 * width * low_latency);
          areas.emplace_back(b.sums(r), 2 * width * tokens);
        }
        std::sort(areas.begin(), areas.end());
        for (size_t i = 0; i < areas.size(); ++i) {
          EXPECT_EQ(areas[i].first % 256, 0);
          EXPECT_LE(areas[i].first + areas[i].second, i + 1 < areas.size() ? areas[i + 1].first : b.bytes());
        }
      }
}

}  // namespace
}  // namespace fathom::kernels
