#include "launch/hosts.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

namespace fathom::launch {
namespace {

constexpr int kMostRanks = 4096;  // of a host

// As ssh's own check: no name that it or a shell would read as anything else.
bool is_host_name(std::string_view name) {
  if (name.empty() || name.front() == '-' || name.front() == '@' || name.back() == '@') return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view("._-@:%").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

Result<int> rank_count(std::string_view text, std::string_view entry) {
  int count            = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (ec != std::errc() || end != text.data() + text.size() || count < 1 || count > kMostRanks)
    return Error{fmt::format("{}: '{}' is no number of ranks from 1 to {}; write HOST:RANKS", entry, text,
                             kMostRanks)};
  return count;
}

Result<LaunchHost> parse_host(std::string_view entry) {
  LaunchHost host;
  std::string_view name = entry, count;
  if (const size_t bracket = entry.find(']'); bracket != std::string_view::npos) {  // [address]:ranks
    const size_t open = entry.find('[');
    if (open == std::string_view::npos || open > bracket)
      return Error{fmt::format("{}: a ']' without its '['", entry)};
    name = entry.substr(open + 1, bracket - open - 1);
    if (bracket + 1 < entry.size()) {
      if (entry[bracket + 1] != ':')
        return Error{fmt::format("{}: ':' and a number of ranks may follow ']'", entry)};
      count = entry.substr(bracket + 2);
      if (count.empty()) return rank_count(count, entry).error();
    }
    host.name = std::string(entry.substr(0, open)) + std::string(name);
  } else {
    if (const size_t colon = entry.find(':'); colon != std::string_view::npos) {
      if (entry.find(':', colon + 1) != std::string_view::npos)
        return Error{fmt::format("{}: write an IPv6 address in brackets, as in [fe80::1]:4", entry)};
      name  = entry.substr(0, colon);
      count = entry.substr(colon + 1);
      if (count.empty()) return rank_count(count, entry).error();
    }
    host.name = std::string(name);
  }
  if (!is_host_name(host.name)) return Error{fmt::format("'{}' is no name of a host", entry)};
  if (!count.empty()) {
    const auto ranks = rank_count(count, entry);
    if (!ranks) return ranks.error();
    host.ranks = *ranks;
  }
  return host;
}

void add_host(std::vector<LaunchHost>& hosts, const LaunchHost& more) {
  const auto known = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const LaunchHost& host) { return host.name == more.name; });
  if (known != hosts.end())
    known->ranks += more.ranks;
  else
    hosts.push_back(more);
}

}  // namespace

Result<std::vector<LaunchHost>> parse_hosts(const std::vector<std::string>& entries) {
  std::vector<LaunchHost> hosts;
  for (const std::string& entry : entries) {
    const auto host = parse_host(entry);
    if (!host) return host.error();
    add_host(hosts, *host);
  }
  return hosts;
}

Result<std::vector<LaunchHost>> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{fmt::format("{} cannot be read; name a file with a host on each line", path)};
  std::vector<LaunchHost> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, word;
    if (!(words >> name)) continue;
    const auto wrong = [&](const std::string& what) {
      return Error{fmt::format("{}, line {}: {}", path, number, what)};
    };
    auto host = parse_host(name);
    if (!host) return wrong(host.error().message);
    LaunchHost entry = *host;
    while (words >> word) {
      if (!word.starts_with("slots="))
        return wrong(fmt::format("'{}' is not known; write HOST slots=RANKS", word));
      const auto ranks = rank_count(std::string_view(word).substr(6), word);
      if (!ranks) return wrong(ranks.error().message);
      entry.ranks = *ranks;
    }
    add_host(hosts, entry);
  }
  if (hosts.empty())
    return Error{fmt::format("{} names no host; write one on each line, as in 'a slots=4'", path)};
  return hosts;
}

Result<std::vector<NodeRanks>> place_ranks(const std::vector<LaunchHost>& hosts, std::optional<int> ranks) {
  std::vector<NodeRanks> nodes;
  int placed = 0;
  for (const LaunchHost& host : hosts) {
    const int count = ranks ? std::min(host.ranks, *ranks - placed) : host.ranks;
    if (count <= 0) break;
    nodes.push_back({static_cast<int>(nodes.size()), host.name, placed, count});
    placed += count;
  }
  if (ranks && placed < *ranks)
    return Error{fmt::format("--ranks {}: the hosts have room for {}; write how many each takes, as in {}:{}",
                             *ranks, placed, hosts.empty() ? "a" : hosts.back().name,
                             (hosts.empty() ? 0 : hosts.back().ranks) + *ranks - placed)};
  return nodes;
}

bool is_this_host(const std::string& name) {
  if (name == "localhost" || name == "::1" || name.starts_with("127.")) return true;
  const std::string own = this_host_name();
  return name == own || name == own.substr(0, own.find('.'));
}

std::string without_user(const std::string& host) { return host.substr(host.rfind('@') + 1); }

bool resolves_to_loopback(const std::string& name) {
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, nullptr, &found) != 0) return false;
  bool loopback = false;
  if (found && found->ai_family == AF_INET)
    loopback = (ntohl(reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr.s_addr) >> 24) == 127;
  else if (found && found->ai_family == AF_INET6)
    loopback = IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(found->ai_addr)->sin6_addr);
  freeaddrinfo(found);
  return loopback;
}

std::string this_host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace fathom::launch
