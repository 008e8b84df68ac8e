// The exchanges of a training step against plain loops over what all ranks put in: on 1 to 4 ranks, blocking
// and overlapped, with layers of uneven sizes.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "comm/async_group.h"
#include "comm/group_checks.h"
#include "core/expect.h"
#include "core/rng.h"
#include "gradient_buckets.h"
#include "sharded_layers.h"
#include "wire.h"

namespace fathom::lab::distributed_training {
namespace {

using comm::AsyncGroup, comm::Group;
using Mode = AsyncGroup::Mode;

constexpr comm::GroupOptions kUnhurried{.timeout = std::chrono::seconds(20)};

std::vector<float> numbers_of(int rank, size_t n, uint64_t seed) {
  std::vector<float> numbers(n);
  fill_uniform(numbers.data(), static_cast<int64_t>(n), seed * 64 + static_cast<uint64_t>(rank), -1, 1);
  return numbers;
}

std::vector<float> sum_of_all(int ranks, size_t n, uint64_t seed) {
  std::vector<float> sum(n);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> numbers = numbers_of(rank, n, seed);
    for (size_t i = 0; i < n; ++i) sum[i] = rank == 0 ? numbers[i] : sum[i] + numbers[i];
  }
  return sum;
}

double largest(std::span<const float> numbers) {
  double most = 0;
  for (const float x : numbers) most = std::max<double>(most, std::abs(x));
  return most;
}

// Other work behind what was started is over only when that is.
void settle(AsyncGroup& async) {
  async.wait(async.start([](Group&) {}));
}

class Wires : public testing::TestWithParam<std::tuple<int, Wire>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  Wire wire() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(RanksAndFormats, Wires,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(Wire::fp32, Wire::fp8)));

TEST_P(Wires, GatherGivesAllShards) {
  comm::expect_all_well(comm::on_threads(ranks(), kUnhurried, [this](Group& group) {
    Codes codes;
    for (const size_t n : {0, 1, 7, 1009}) {
      const std::vector<float> mine = numbers_of(group.rank(), n, 1);
      std::vector<float> whole(n * static_cast<size_t>(group.size()));
      all_gather(group, wire(), mine, whole, codes);
      for (int rank = 0; rank < group.size(); ++rank) {
        const std::vector<float> theirs = numbers_of(rank, n, 1);
        for (size_t i = 0; i < n; ++i) {
          const double allowed =
              wire() == Wire::fp32 ? 0 : std::abs(theirs[i]) / 16 + largest(theirs) / 448 / 1024;
          ASSERT_LE(std::abs(whole[static_cast<size_t>(rank) * n + i] - theirs[i]), allowed * 1.0001);
        }
      }
      // The same bits everywhere: what rank 0 has is what all have.
      std::vector<float> of_rank_0 = whole;
      group.broadcast(std::span(of_rank_0), 0);
      EXPECT_EQ(whole, of_rank_0);
    }
  }));
}

TEST_P(Wires, ScatterGivesTheSumsOfOwnShard) {
  comm::expect_all_well(comm::on_threads(ranks(), kUnhurried, [this](Group& group) {
    Codes codes;
    const auto size = static_cast<size_t>(group.size()), me = static_cast<size_t>(group.rank());
    for (const size_t n : {0, 1, 7, 1009}) {
      std::vector<float> sums(n, -1);
      reduce_scatter(group, wire(), numbers_of(group.rank(), n * size, 2), sums, codes);
      const std::vector<float> want = sum_of_all(group.size(), n * size, 2);
      for (size_t i = 0; i < n; ++i) {
        double allowed = 0;
        for (int rank = 0; wire() == Wire::fp8 && rank < group.size(); ++rank) {
          if (rank == group.rank()) continue;
          const std::vector<float> theirs = numbers_of(rank, n * size, 2);
          allowed += std::abs(theirs[me * n + i]) / 8 + largest(theirs) / 57344 / 131072;
        }
        ASSERT_LE(std::abs(sums[i] - want[me * n + i]), allowed * 1.0001);
      }
    }
  }));
}

TEST_P(Wires, ZerosStayZeros) {
  comm::expect_all_well(comm::on_threads(ranks(), kUnhurried, [this](Group& group) {
    Codes codes;
    const std::vector<float> zeros(5 * static_cast<size_t>(group.size()));
    std::vector<float> whole(zeros.size(), 1), sums(5, 1);
    all_gather(group, wire(), std::span(zeros).first(5), whole, codes);
    reduce_scatter(group, wire(), zeros, sums, codes);
    EXPECT_EQ(whole, zeros);
    EXPECT_EQ(sums, std::vector<float>(5));
  }));
}

class Exchanges : public testing::TestWithParam<std::tuple<int, Mode>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  Mode mode() const { return std::get<1>(GetParam()); }
  void on_ranks(const std::function<void(Group&, AsyncGroup&)>& rank_main) const {
    comm::expect_all_well(comm::on_threads(ranks(), kUnhurried, [&](Group& group) {
      AsyncGroup async(group, mode());
      rank_main(group, async);
    }));
  }
};
INSTANTIATE_TEST_SUITE_P(RanksAndModes, Exchanges,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(Mode::blocking, Mode::overlapped)));

const std::vector<int64_t> kUneven{5, 0, 1009, 64, 3, 1};
constexpr size_t kFloats = 5 + 0 + 1009 + 64 + 3 + 1;

TEST_P(Exchanges, BucketsOfEverySizeAreSums) {
  on_ranks([](Group& group, AsyncGroup& async) {
    // From the last layer: 1, 3, 64, 1009 and 5 numbers, where the empty layer fills no bucket; 1 + 3 are 16
    // bytes.
    const std::pair<int64_t, int64_t> buckets_of_bytes[] = {
        {0, 5}, {16, 4}, {256, 3}, {4096, 2}, {INT64_MAX, 1}};
    for (const auto& [bytes, count] : buckets_of_bytes) {
      std::vector<float> gradients(kFloats);
      GradientBuckets buckets(async, gradients, kUneven, bytes);
      for (uint64_t step = 1; step <= 2; ++step) {
        const std::vector<float> mine = numbers_of(group.rank(), kFloats, step);
        size_t end                    = kFloats;
        for (auto l = static_cast<int64_t>(kUneven.size()) - 1; l >= 0; --l) {
          // The backward pass writes a layer while earlier buckets are on their way.
          const size_t begin = end - static_cast<size_t>(kUneven[static_cast<size_t>(l)]);
          std::copy_n(&mine[0] + begin, end - begin, &gradients[0] + begin);
          buckets.ready(l);
          end = begin;
        }
        buckets.finish();
        EXPECT_EQ(gradients, sum_of_all(group.size(), kFloats, step)) << bytes;
      }
      EXPECT_EQ(buckets.buckets_sent(), 2 * count) << bytes;
    }
  });
}

TEST_P(Exchanges, ABucketLeavesBeforeTheBackwardPassEnds) {
  on_ranks([](Group& group, AsyncGroup& async) {
    std::vector<float> gradients{1, 2, 3};
    GradientBuckets buckets(async, gradients, {1, 1, 1}, 8);
    buckets.ready(2);
    settle(async);
    EXPECT_EQ(gradients, (std::vector<float>{1, 2, 3}));
    buckets.ready(1);
    settle(async);
    const auto size = static_cast<float>(group.size());
    EXPECT_EQ(gradients, (std::vector<float>{1, 2 * size, 3 * size}));
    EXPECT_THROW(buckets.finish(), ContractError);
    EXPECT_THROW(buckets.ready(1), ContractError);
    buckets.ready(0);
    buckets.finish();
    EXPECT_EQ(gradients, (std::vector<float>{size, 2 * size, 3 * size}));
  });
}

// A layer's shard of each rank has as many numbers as kUneven says.
std::vector<float> whole_layer(int ranks, int64_t layer) {
  std::vector<float> whole;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto shard = numbers_of(rank, static_cast<size_t>(kUneven[static_cast<size_t>(layer)]),
                                  static_cast<uint64_t>(layer));
    whole.insert(whole.end(), shard.begin(), shard.end());
  }
  return whole;
}

TEST_P(Exchanges, ALayerIsWholeWhileItIsInUse) {
  on_ranks([](Group& group, AsyncGroup& async) {
    const auto layers = static_cast<int64_t>(kUneven.size());
    std::vector<std::vector<float>> own;
    std::vector<std::span<const float>> shards;
    std::vector<int64_t> order;
    for (int64_t l = 0; l < layers; ++l)
      own.push_back(numbers_of(group.rank(), static_cast<size_t>(kUneven[static_cast<size_t>(l)]),
                               static_cast<uint64_t>(l)));
    for (const auto& shard : own) shards.emplace_back(shard);
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t l = 0; l < layers; ++l) order.push_back(l);
      for (int64_t l = layers; l-- > 0;) order.push_back(l);
    }
    LayerGather gather(async, shards, order, Wire::fp32);
    EXPECT_EQ(gather.gathers(),
              4 * layers - 3);  // the last layer twice in a row, and the first between passes
    for (int step = 0; step < 2; ++step) {
      gather.begin();
      for (const int64_t layer : order) {
        const float* const weights = gather.weights(layer);
        settle(async);  // the next one has arrived, and left this one alone
        const std::vector<float> want = whole_layer(group.size(), layer);
        EXPECT_EQ(std::vector<float>(weights, weights + want.size()), want) << layer;
      }
      EXPECT_THROW(gather.weights(layers - 1), ContractError);
    }
  });
}

TEST_P(Exchanges, TheNextLayerIsGatheredAheadWhereWorkOverlaps) {
  on_ranks([](Group& group, AsyncGroup& async) {
    std::vector<float> shard(3, 1);
    LayerGather gather(async, {shard, shard}, {0, 1}, Wire::fp32);
    gather.begin();
    gather.weights(0);
    settle(async);
    shard.assign(3, 2);  // too late for what was gathered ahead
    EXPECT_EQ(gather.weights(1)[0], async.overlapped() ? 1 : 2);
    EXPECT_EQ(gather.bytes(), (async.overlapped() ? 2 : 1) * 12 * group.size());
    settle(async);
  });
}

TEST_P(Exchanges, GradientsAreSummedIntoShards) {
  on_ranks([](Group& group, AsyncGroup& async) {
    const auto layers = static_cast<int64_t>(kUneven.size());
    const auto size = static_cast<size_t>(group.size()), me = static_cast<size_t>(group.rank());
    for (const bool keep_whole : {false, true}) {
      std::vector<std::vector<float>> sums;
      std::vector<std::span<float>> shards;
      for (const int64_t n : kUneven) sums.emplace_back(static_cast<size_t>(n), -1.0f);
      for (auto& sum : sums) shards.emplace_back(sum);
      GradientScatter scatter(async, shards, Wire::fp32, keep_whole);
      const int passes = keep_whole ? 2 : 1;
      for (int step = 0; step < 2; ++step) {
        for (int pass = 0; pass < passes; ++pass)
          for (int64_t l = layers; l-- > 0;) {
            const size_t n   = static_cast<size_t>(kUneven[static_cast<size_t>(l)]) * size;
            const auto mine  = numbers_of(group.rank(), n, static_cast<uint64_t>(l));
            float* const all = scatter.whole(l);
            for (size_t i = 0; i < n; ++i) all[i] = pass == 0 ? mine[i] : all[i] + mine[i];
            if (pass == passes - 1) scatter.ready(l);
          }
        scatter.finish();
        for (int64_t l = 0; l < layers; ++l) {
          const auto n    = static_cast<size_t>(kUneven[static_cast<size_t>(l)]);
          const auto want = sum_of_all(group.size(), n * size, static_cast<uint64_t>(l));
          for (size_t i = 0; i < n; ++i)  // twice a number is exact
            EXPECT_EQ(sums[static_cast<size_t>(l)][i], static_cast<float>(passes) * want[me * n + i]);
        }
      }
    }
  });
}

TEST(Exchange, LayersThatAreNotAllGradientsAreRefused) {
  comm::expect_all_well(comm::on_threads(1, kUnhurried, [](Group& group) {
    AsyncGroup async(group, Mode::overlapped);
    std::vector<float> gradients(4);
    EXPECT_THROW(GradientBuckets(async, gradients, {1, 2}, 1), ContractError);
  }));
}

}  // namespace
}  // namespace fathom::lab::distributed_training
