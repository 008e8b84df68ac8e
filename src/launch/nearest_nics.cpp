#include "launch/nearest_nics.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace fathom::launch {
namespace {

// Parts of two paths that are equal from the root on: bridges that both devices are behind.
int shared_bridges(const std::string& a, const std::string& b) {
  int shared = 0;
  for (size_t i = 0; i < a.size() && i < b.size() && a[i] == b[i]; ++i) {
    const bool part_ends = (i + 1 == a.size() || a[i + 1] == '/') && (i + 1 == b.size() || b[i + 1] == '/');
    shared += part_ends && a[i] != '/';
  }
  return shared;
}

}  // namespace

Result<std::vector<std::vector<std::string>>> nearest_nics(const std::vector<PciDevice>& gpus,
                                                           const std::vector<PciDevice>& nics, int count) {
  if (nics.size() < static_cast<size_t>(count))
    return Error{fmt::format("{} NICs for each GPU are asked for, and there are {}", count, nics.size())};
  std::map<std::string, int> served;
  std::vector<std::vector<std::string>> chosen;
  for (const PciDevice& gpu : gpus) {
    std::vector<std::tuple<int, int, std::string>> order;
    for (const PciDevice& nic : nics)
      order.emplace_back(-shared_bridges(gpu.path, nic.path), served[nic.name], nic.name);
    std::sort(order.begin(), order.end());
    chosen.emplace_back();
    for (int i = 0; i < count; ++i) {
      chosen.back().push_back(std::get<2>(order[static_cast<size_t>(i)]));
      ++served[chosen.back().back()];
    }
  }
  return chosen;
}

}  // namespace fathom::launch
