#include "cli/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <span>

#include "launch/hosts.h"
#include "measure/statistics.h"

namespace fathom::cli {
namespace {

using FabricClock = std::chrono::steady_clock;

constexpr size_t kTransferBytes   = 4 << 20;  // long beside a round trip, short beside a group's timeout
constexpr double kTransferSeconds = 0.1;      // of transfers in one direction
constexpr int kMostTransfers      = 16;
constexpr int kWarmUpTrips        = 5;

// What one pair measured, in the order in which it is told to all ranks.
struct PairTimes {
  double latency_s = 0, to_s = 0, back_s = 0, wrong = 0;
};

double seconds_since(FabricClock::time_point start) {
  return std::chrono::duration<double>(FabricClock::now() - start).count();
}

uint8_t byte_of(int from, size_t i) { return static_cast<uint8_t>(31 * (from + 1) + i % 251); }

// One end of a pair. Both ends make the same calls in the same order.
class PairEnd {
 public:
  PairEnd(comm::Group& group, int other) : group_(group), other_(other) {}

  // Half of a round trip; on the first end.
  double latency(int round_trips, bool first) {
    std::array<uint8_t, 8> ball{};
    std::vector<double> trips;
    for (int i = -kWarmUpTrips; i < round_trips; ++i) {
      const auto start = FabricClock::now();
      if (first) group_.send(std::span<const uint8_t>(ball), other_);
      group_.receive(std::span<uint8_t>(ball), other_);
      if (!first) group_.send(std::span<const uint8_t>(ball), other_);
      if (i >= 0) trips.push_back(seconds_since(start) / 2);
    }
    return measure::median(trips);
  }

  // Seconds of a transfer, until the receiver has said that it is there.
  double send_all() {
    std::vector<uint8_t> data(kTransferBytes);
    for (size_t i = 0; i < data.size(); ++i) data[i] = byte_of(group_.rank(), i);
    const double once = send_one(data);
    const auto more = static_cast<int64_t>(std::clamp(kTransferSeconds / once, 1.0, double{kMostTransfers}));
    group_.send(std::span<const int64_t>(&more, 1), other_);
    std::vector<double> times;
    for (int64_t i = 0; i < more; ++i) times.push_back(send_one(data));
    return measure::median(times);
  }
  int64_t receive_all() {
    std::vector<uint8_t> data(kTransferBytes);
    receive_one(data);
    int64_t more = 0;
    group_.receive(std::span<int64_t>(&more, 1), other_);
    for (int64_t i = 0; i < more; ++i) {
      std::fill(data.begin(), data.end(), uint8_t{0});
      receive_one(data);
    }
    int64_t wrong = 0;
    for (size_t i = 0; i < data.size(); ++i) wrong += data[i] != byte_of(other_, i);
    return wrong;
  }

 private:
  double send_one(std::span<const uint8_t> data) {
    uint8_t there    = 0;
    const auto start = FabricClock::now();
    group_.send(data, other_);
    group_.receive(std::span<uint8_t>(&there, 1), other_);
    return seconds_since(start);
  }
  void receive_one(std::span<uint8_t> data) {
    const uint8_t there = 1;
    group_.receive(data, other_);
    group_.send(std::span<const uint8_t>(&there, 1), other_);
  }

  comm::Group& group_;
  int other_;
};

// Called by all ranks; those that are in no pair wait for the result.
PairTimes time_pair(comm::Group& group, int a, int b, int round_trips) {
  PairTimes times;
  if (group.rank() == a) {
    PairEnd end(group, b);
    times.latency_s = end.latency(round_trips, true);
    times.to_s      = end.send_all();
    times.wrong     = static_cast<double>(end.receive_all());
    std::array<double, 2> theirs{};
    group.receive(std::span<double>(theirs), b);
    times.back_s = theirs[0];
    times.wrong += theirs[1];
  } else if (group.rank() == b) {
    PairEnd end(group, a);
    end.latency(round_trips, false);
    const auto wrong = static_cast<double>(end.receive_all());
    const std::array<double, 2> mine{end.send_all(), wrong};
    group.send(std::span<const double>(mine), a);
  }
  std::array<double, 4> told{times.latency_s, times.to_s, times.back_s, times.wrong};
  group.broadcast(std::span<double>(told), a);
  return {told[0], told[1], told[2], told[3]};
}

// The launcher's name for this host, or the host's own.
std::vector<std::string> hosts_of_ranks(comm::Group& group) {
  constexpr size_t kLongest = 256;
  const char* launched      = std::getenv("FATHOM_NODE_NAME");
  const std::string name    = launched && *launched ? launched : launch::this_host_name();
  std::vector<uint8_t> mine(kLongest), all(kLongest * static_cast<size_t>(group.size()));
  std::memcpy(mine.data(), name.data(), std::min(name.size(), kLongest - 1));
  group.all_gather<uint8_t>(mine, all);
  std::vector<std::string> hosts;
  for (int rank = 0; rank < group.size(); ++rank)
    hosts.emplace_back(reinterpret_cast<const char*>(all.data()) + static_cast<size_t>(rank) * kLongest);
  return hosts;
}

void keep_better(FabricPair& pair, const PairTimes& times) {
  const double to = kTransferBytes / times.to_s, back = kTransferBytes / times.back_s;
  const bool first    = pair.latency_s == 0;
  pair.latency_s      = first ? times.latency_s : std::min(pair.latency_s, times.latency_s);
  pair.bytes_per_s[0] = std::max(pair.bytes_per_s[0], to);
  pair.bytes_per_s[1] = std::max(pair.bytes_per_s[1], back);
  pair.wrong += static_cast<int64_t>(times.wrong);
}

}  // namespace

const char* to_string(PairKind kind) {
  switch (kind) {
    case PairKind::same_host:
      return "same host";
    case PairKind::same_nvlink_domain:
      return "same NVLink domain";
    case PairKind::network:
      return "network";
  }
  return "";
}

void mark_slow_pairs(Fabric& fabric) {
  for (const PairKind kind : {PairKind::same_host, PairKind::same_nvlink_domain, PairKind::network}) {
    double least_s = 0, most = 0;
    for (const FabricPair& pair : fabric.pairs) {
      if (pair.kind != kind) continue;
      least_s = least_s == 0 ? pair.latency_s : std::min(least_s, pair.latency_s);
      most    = std::max({most, pair.bytes_per_s[0], pair.bytes_per_s[1]});
    }
    for (FabricPair& pair : fabric.pairs) {
      if (pair.kind != kind) continue;
      pair.slow_latency = pair.latency_s > kSlow * least_s;
      for (int way = 0; way < 2; ++way) pair.slow_bandwidth[way] = pair.bytes_per_s[way] < most / kSlow;
    }
  }
}

std::string slow_in_common(const Fabric& fabric) {
  std::vector<const FabricPair*> slow;
  for (const FabricPair& pair : fabric.pairs)
    if (pair.slow()) slow.push_back(&pair);
  if (slow.size() < 2) return "";
  const auto host      = [&](int rank) { return fabric.hosts[static_cast<size_t>(rank)]; };
  const FabricPair one = *slow.front();
  for (const int rank : {one.a, one.b})
    if (std::all_of(slow.begin(), slow.end(),
                    [&](const FabricPair* p) { return p->a == rank || p->b == rank; }))
      return fmt::format("rank {} on {}", rank, host(rank));
  const std::set<std::string> all(fabric.hosts.begin(), fabric.hosts.end());
  for (const std::string& name : {host(one.a), host(one.b)})
    if (all.size() > 1 && std::all_of(slow.begin(), slow.end(), [&](const FabricPair* p) {
          return host(p->a) == name || host(p->b) == name;
        }))
      return fmt::format("host {}", name);
  return "";
}

Fabric measure_fabric(comm::Group& group, int round_trips, int nvlink) {
  Fabric fabric{.hosts = hosts_of_ranks(group), .pairs = {}};
  for (int a = 0; a < group.size(); ++a)
    for (int b = a + 1; b < group.size(); ++b) {
      FabricPair pair{.a = a, .b = b};
      if (fabric.hosts[static_cast<size_t>(a)] != fabric.hosts[static_cast<size_t>(b)])
        pair.kind = nvlink > 0 && a / nvlink == b / nvlink ? PairKind::same_nvlink_domain : PairKind::network;
      keep_better(pair, time_pair(group, a, b, round_trips));
      fabric.pairs.push_back(pair);
    }
  mark_slow_pairs(fabric);
  const bool any =
      std::any_of(fabric.pairs.begin(), fabric.pairs.end(), [](const FabricPair& p) { return p.slow(); });
  for (FabricPair& pair : fabric.pairs)
    if (pair.slow()) keep_better(pair, time_pair(group, pair.a, pair.b, round_trips));
  if (any) mark_slow_pairs(fabric);
  return fabric;
}

}  // namespace fathom::cli
