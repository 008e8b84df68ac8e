// Latency and bandwidth of every pair of ranks, over their group's own transport: which pair is slow, and
// which rank or host all slow pairs have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/group.h"

namespace fathom::cli {

// What lies between two ranks. Pairs are compared with others of their kind alone.
enum class PairKind : uint8_t { same_host, same_nvlink_domain, network };
const char* to_string(PairKind kind);

struct FabricPair {
  int a = 0, b = 0;  // a < b
  PairKind kind          = PairKind::same_host;
  double latency_s       = 0;   // half of a round trip of 8 bytes, median
  double bytes_per_s[2]  = {};  // from a to b, and back; median
  int64_t wrong          = 0;   // bytes that arrived as others than were sent
  bool slow_latency      = false;
  bool slow_bandwidth[2] = {};
  bool slow() const { return slow_latency || slow_bandwidth[0] || slow_bandwidth[1]; }
};

struct Fabric {
  std::vector<std::string> hosts;  // of each rank
  std::vector<FabricPair> pairs;
};

// A pair is slow where its latency is more than kSlow times the least of its kind, or a bandwidth less than
// 1/kSlow of the most. With kSlow below 3, a pair of ranks on one core would be slow beside a pair on two.
inline constexpr double kSlow = 3;
void mark_slow_pairs(Fabric& fabric);

// What all slow pairs have in common, where there are two or more: "rank 3 on c" or "host c"; else empty.
std::string slow_in_common(const Fabric& fabric);

// Times one pair after the other, all others wait. A pair that looks slow is timed again, and its better
// times count. `nvlink`: that many consecutive ranks share an NVLink domain; 0: not known. Equal on all
// ranks. Throws GroupError.
Fabric measure_fabric(comm::Group& group, int round_trips, int nvlink = 0);

}  // namespace fathom::cli
