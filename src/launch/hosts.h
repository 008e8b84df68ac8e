// Where `fathom launch` starts ranks: hosts as mpirun's users write them, and which ranks each gets.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace fathom::launch {

struct LaunchHost {
  std::string name;  // as ssh takes it: "a", "user@a", "10.0.0.2"
  int ranks = 1;

  bool operator==(const LaunchHost&) const = default;
};

// "a:4", "a" (one rank), "user@a:4", "[fe80::1]:4". A host that is named again gets as many more.
Result<std::vector<LaunchHost>> parse_hosts(const std::vector<std::string>& entries);

// A line a host, as for Open MPI and MPICH: "a slots=4", "a:4" or "a"; # begins a comment.
Result<std::vector<LaunchHost>> read_hostfile(const std::string& path);

// The ranks of one host: first, first + 1, ...
struct NodeRanks {
  int node = 0;
  std::string host;
  int first = 0, count = 0;

  bool operator==(const NodeRanks&) const = default;
};

// Hosts are filled in their order; with `ranks` fewer than all, the last hosts get none and are left out.
// An error where there is room for fewer than `ranks`.
Result<std::vector<NodeRanks>> place_ranks(const std::vector<LaunchHost>& hosts, std::optional<int> ranks);

// "localhost", a loopback address or the name of this host, so that no ssh is needed.
bool is_this_host(const std::string& name);

std::string without_user(const std::string& host);  // "user@a": "a"; "[::1]": "::1"

// False too where the name is unknown here.
bool resolves_to_loopback(const std::string& name);

std::string this_host_name();

}  // namespace fathom::launch
