#include "cli/fabric.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "cli/fabric_report.h"
#include "comm/thread_group.h"

namespace fathom::cli {
namespace {

// Made up, to see what is said of them: 20 us and 10 GB/s between all, but for what a test changes.
Fabric even_fabric(const std::vector<std::string>& hosts) {
  Fabric fabric{.hosts = hosts, .pairs = {}};
  for (int a = 0; a < static_cast<int>(hosts.size()); ++a)
    for (int b = a + 1; b < static_cast<int>(hosts.size()); ++b) {
      FabricPair pair{.a = a, .b = b, .latency_s = 20e-6, .bytes_per_s = {10e9, 10e9}};
      pair.kind = hosts[static_cast<size_t>(a)] == hosts[static_cast<size_t>(b)] ? PairKind::same_host
                                                                                 : PairKind::network;
      fabric.pairs.push_back(pair);
    }
  return fabric;
}

FabricPair& pair_of(Fabric& fabric, int a, int b) {
  for (FabricPair& pair : fabric.pairs)
    if (pair.a == a && pair.b == b) return pair;
  throw std::out_of_range("no such pair");
}

int slow_pairs(const Fabric& fabric) {
  int slow = 0;
  for (const FabricPair& pair : fabric.pairs) slow += pair.slow();
  return slow;
}

TEST(Fabric, EvenPairsAreNotSlow) {
  for (const size_t ranks : {0, 1, 2, 3, 7}) {
    Fabric fabric = even_fabric(std::vector<std::string>(ranks, "a"));
    mark_slow_pairs(fabric);
    EXPECT_EQ(slow_pairs(fabric), 0);
    EXPECT_EQ(slow_in_common(fabric), "");
    EXPECT_EQ(fabric_text(fabric).find("SLOW"), std::string::npos);
  }
}

TEST(Fabric, OneSlowWayIsNamed) {
  Fabric fabric                        = even_fabric({"a", "a", "a", "a"});
  pair_of(fabric, 1, 3).bytes_per_s[1] = 3e9;
  mark_slow_pairs(fabric);
  EXPECT_EQ(slow_pairs(fabric), 1);
  EXPECT_EQ(slow_in_common(fabric), "");
  const std::string text = fabric_text(fabric, 200);
  EXPECT_NE(text.find("SLOW: ranks 1 and 3 (a): 3 GB/s from 3 to 1"), std::string::npos) << text;
  EXPECT_NE(text.find("by bandwidth ranks 1 and 3 (a): 3 GB/s, 0.3 x the most"), std::string::npos) << text;
}

TEST(Fabric, BothSidesOfTheThreshold) {
  for (const double factor : {2.99, 3.01}) {
    Fabric fabric                   = even_fabric({"a", "b", "c"});
    pair_of(fabric, 0, 2).latency_s = factor * 20e-6;
    mark_slow_pairs(fabric);
    EXPECT_EQ(slow_pairs(fabric), factor > kSlow);
  }
}

TEST(Fabric, WhatSlowPairsHaveInCommon) {
  Fabric rank = even_fabric({"a", "b", "c", "d"});
  for (const int other : {0, 1, 2}) pair_of(rank, other, 3).latency_s = 1e-3;
  mark_slow_pairs(rank);
  EXPECT_EQ(slow_in_common(rank), "rank 3 on d");

  Fabric host = even_fabric({"a", "a", "b", "b", "c", "c"});
  for (const int mine : {0, 1, 2, 3})
    for (const int theirs : {4, 5}) pair_of(host, mine, theirs).bytes_per_s[0] = 1e9;
  mark_slow_pairs(host);
  EXPECT_EQ(slow_in_common(host), "host c");

  Fabric nothing                   = even_fabric({"a", "b", "c", "d"});
  pair_of(nothing, 0, 1).latency_s = pair_of(nothing, 2, 3).latency_s = 1e-3;
  mark_slow_pairs(nothing);
  EXPECT_EQ(slow_pairs(nothing), 2);
  EXPECT_EQ(slow_in_common(nothing), "");
}

// A network is slower than a host's own memory, and that is no news.
TEST(Fabric, PairsAreComparedWithTheirKind) {
  Fabric fabric = even_fabric({"a", "a", "b", "b"});
  for (FabricPair& pair : fabric.pairs)
    if (pair.kind == PairKind::network) pair.latency_s = 1e-3;
  mark_slow_pairs(fabric);
  EXPECT_EQ(slow_pairs(fabric), 0);
}

TEST(Fabric, RowsAndMatrices) {
  Fabric fabric                        = even_fabric({"a", "b", "c"});
  pair_of(fabric, 0, 1).latency_s      = 7e-6;
  pair_of(fabric, 0, 1).bytes_per_s[1] = 5e9;
  mark_slow_pairs(fabric);
  const std::string text = fabric_text(fabric, 100);
  EXPECT_NE(text.find("0 a"), std::string::npos) << text;
  EXPECT_NE(text.find("7.0"), std::string::npos) << text;
  EXPECT_NE(fabric_text(fabric, 20).find("--csv or --json has them all"), std::string::npos);
  EXPECT_EQ(fabric_table(fabric).rows.size(), 3u);
  const nlohmann::json json = fabric_json(fabric, "threads");
  EXPECT_EQ(json["pairs"].size(), 3u);
  EXPECT_EQ(json["pairs"][0]["b_to_a_bytes_per_s"], 5e9);
}

// Every pair once, on every rank the same, and no byte wrong.
TEST(Fabric, IsMeasuredBetweenThreads) {
  for (const int ranks : {1, 2, 3, 5}) {
    auto groups = comm::make_thread_groups(ranks);
    std::vector<Fabric> fabrics(groups.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < groups.size(); ++rank)
      threads.emplace_back([&, rank] { fabrics[rank] = measure_fabric(*groups[rank], 3, 2); });
    for (std::thread& thread : threads) thread.join();
    for (const Fabric& fabric : fabrics) {
      EXPECT_EQ(fabric.hosts.size(), groups.size());
      ASSERT_EQ(fabric.pairs.size(), groups.size() * (groups.size() - 1) / 2);
      for (size_t p = 0; p < fabric.pairs.size(); ++p) {
        const FabricPair &pair = fabric.pairs[p], &same = fabrics[0].pairs[p];
        EXPECT_GT(pair.latency_s, 0);
        EXPECT_GT(pair.bytes_per_s[0], 0);
        EXPECT_GT(pair.bytes_per_s[1], 0);
        EXPECT_EQ(pair.wrong, 0);
        EXPECT_EQ(pair.kind, PairKind::same_host);
        EXPECT_EQ(std::tie(pair.a, pair.b, pair.latency_s), std::tie(same.a, same.b, same.latency_s));
      }
    }
  }
}

}  // namespace
}  // namespace fathom::cli
