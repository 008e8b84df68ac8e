// The variables and their values are those of NCCL's user guide (its page on environment variables) and of
// what NCCL 2.28 parses: lists in its tuning.cc, levels in paths.cc, numbers in param.cc. NCCL ignores a
// number that it cannot read and stops at a list that it cannot read.
#include "launch/nccl_variables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <vector>

#include "lab/target.h"
#include "launch/nccl_profile.h"

namespace fathom::launch {
namespace {

enum class Takes : uint8_t { number, level, algorithms, protocols, devices, text };

struct NcclVariable {
  const char* name;
  Takes takes;
  int64_t least = 0, most = 0;  // of a number
};

constexpr int64_t kAnyBytes = int64_t{1} << 40;

constexpr NcclVariable kNcclVariables[] = {
    {"NCCL_ALGO", Takes::algorithms},
    {"NCCL_BUFFSIZE", Takes::number, 1, kAnyBytes},
    {"NCCL_CGA_CLUSTER_SIZE", Takes::number, 0, 8},
    {"NCCL_COLLNET_ENABLE", Takes::number, 0, 1},
    {"NCCL_CROSS_NIC", Takes::number, 0, 2},
    {"NCCL_CUMEM_ENABLE", Takes::number, 0, 1},
    {"NCCL_CUMEM_HOST_ENABLE", Takes::number, 0, 1},
    {"NCCL_DEBUG", Takes::text},
    {"NCCL_DEBUG_FILE", Takes::text},
    {"NCCL_DEBUG_SUBSYS", Takes::text},
    {"NCCL_DMABUF_ENABLE", Takes::number, 0, 1},
    {"NCCL_GRAPH_MIXING_SUPPORT", Takes::number, 0, 1},
    {"NCCL_GRAPH_REGISTER", Takes::number, 0, 1},
    {"NCCL_HOSTID", Takes::text},
    {"NCCL_IB_ADAPTIVE_ROUTING", Takes::number, 0, 1},
    {"NCCL_IB_DISABLE", Takes::number, 0, 1},
    {"NCCL_IB_GID_INDEX", Takes::number, -1, 255},
    {"NCCL_IB_HCA", Takes::devices},
    {"NCCL_IB_PCI_RELAXED_ORDERING", Takes::number, 0, 2},
    {"NCCL_IB_QPS_PER_CONNECTION", Takes::number, 1, 128},
    {"NCCL_IB_RETRY_CNT", Takes::number, 0, 7},
    {"NCCL_IB_SL", Takes::number, 0, 15},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", Takes::number, 0, 1},
    {"NCCL_IB_TC", Takes::number, 0, 255},
    {"NCCL_IB_TIMEOUT", Takes::number, 0, 31},
    {"NCCL_IGNORE_CPU_AFFINITY", Takes::number, 0, 1},
    {"NCCL_LOCAL_REGISTER", Takes::number, 0, 1},
    {"NCCL_MAX_CTAS", Takes::number, 1, 64},
    {"NCCL_MAX_NCHANNELS", Takes::number, 1, 64},
    {"NCCL_MIN_CTAS", Takes::number, 1, 64},
    {"NCCL_MIN_NCHANNELS", Takes::number, 1, 64},
    {"NCCL_MNNVL_ENABLE", Takes::number, 0, 2},
    {"NCCL_NCHANNELS_PER_NET_PEER", Takes::number, 1, 64},
    {"NCCL_NET", Takes::text},
    {"NCCL_NET_GDR_C2C", Takes::number, 0, 1},
    {"NCCL_NET_GDR_LEVEL", Takes::level},
    {"NCCL_NET_GDR_READ", Takes::number, 0, 1},
    {"NCCL_NET_PLUGIN", Takes::text},
    {"NCCL_NSOCKS_PERTHREAD", Takes::number, 1, 64},
    {"NCCL_NTHREADS", Takes::number, 64, 512},
    {"NCCL_NVB_DISABLE", Takes::number, 0, 1},
    {"NCCL_NVLS_ENABLE", Takes::number, 0, 2},
    {"NCCL_NVLS_NCHANNELS", Takes::number, 1, 64},
    {"NCCL_P2P_DISABLE", Takes::number, 0, 1},
    {"NCCL_P2P_LEVEL", Takes::level},
    {"NCCL_P2P_NET_CHUNKSIZE", Takes::number, 1, kAnyBytes},
    {"NCCL_P2P_PXN_LEVEL", Takes::number, 0, 2},
    {"NCCL_PROTO", Takes::protocols},
    {"NCCL_PXN_DISABLE", Takes::number, 0, 1},
    {"NCCL_SHM_DISABLE", Takes::number, 0, 1},
    {"NCCL_SOCKET_FAMILY", Takes::text},
    {"NCCL_SOCKET_IFNAME", Takes::devices},
    {"NCCL_SOCKET_NTHREADS", Takes::number, 1, 16},
    {"NCCL_TOPO_FILE", Takes::text},
    {"NCCL_TUNER_PLUGIN", Takes::text},
};

const std::vector<std::string> kAlgorithms  = {"Tree",     "Ring", "CollNetDirect", "CollNetChain", "NVLS",
                                               "NVLSTree", "PAT"};
const std::vector<std::string> kProtocols   = {"LL", "LL128", "Simple"};
const std::vector<std::string> kCollectives = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                               "AllReduce"};
// From near to far; the old numbers 0 to 5 are LOC, PIX, PXB, PHB, SYS, SYS.
const std::vector<std::string> kLevels = {"LOC", "NVL", "NVB", "C2C", "PIX",
                                          "PXB", "P2C", "PXN", "PHB", "SYS"};

std::vector<std::string> parts_of(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool is_among(std::string_view word, const std::vector<std::string>& known) {
  return std::any_of(known.begin(), known.end(),
                     [&](const std::string& one) { return same_word(word, one); });
}

// "ring,tree", "^LL128", "ring;allreduce:tree": lists that a collective's name may come before. What is wrong
// with it.
std::string wrong_list(std::string_view value, const std::vector<std::string>& words) {
  bool first = true;
  for (const std::string& part : parts_of(value, ';')) {
    std::string_view list = part;
    if (const size_t colon = list.find(':'); colon != std::string_view::npos) {
      if (const std::string_view name = list.substr(0, colon); !is_among(name, kCollectives))
        return fmt::format("'{}' is no collective; there are {}", name, fmt::join(kCollectives, ", "));
      list.remove_prefix(colon + 1);
    } else if (!first) {
      return fmt::format("'{}' comes after ';' without a collective's name and a colon", part);
    }
    first = false;
    if (list.starts_with("^")) list.remove_prefix(1);
    for (const std::string& word : parts_of(list, ','))
      if (!is_among(word, words)) return fmt::format("'{}' is none of {}", word, fmt::join(words, ", "));
  }
  return "";
}

std::string wrong_number(std::string_view value, const NcclVariable& variable) {
  int64_t number       = 0;
  const auto [end, ec] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (ec == std::errc() && end == value.data() + value.size() && number >= variable.least &&
      number <= variable.most)
    return "";
  return fmt::format("a whole number from {} to {} is expected", variable.least, variable.most);
}

std::string wrong_level(std::string_view value) {
  if (std::find(kLevels.begin(), kLevels.end(), value) != kLevels.end()) return "";  // NCCL minds the case
  if (value.size() == 1 && value.front() >= '0' && value.front() <= '5') return "";
  return fmt::format("one of {}, or an old number from 0 to 5, is expected", fmt::join(kLevels, ", "));
}

// "mlx5", "=mlx5_0:1,mlx5_1", "^docker0": prefixes or, after =, whole names.
std::string wrong_devices(std::string_view value) {
  if (value.starts_with("^")) value.remove_prefix(1);
  if (value.starts_with("=")) value.remove_prefix(1);
  for (const std::string& name : parts_of(value, ','))
    if (name.empty() || !std::all_of(name.begin(), name.end(), [](unsigned char c) {
          return std::isalnum(c) || c == '_' || c == '-' || c == ':' || c == '.';
        }))
      return fmt::format("'{}' is no name of a device", name);
  return "";
}

std::string wrong_value(std::string_view value, const NcclVariable& variable) {
  switch (variable.takes) {
    case Takes::number:
      return wrong_number(value, variable);
    case Takes::level:
      return wrong_level(value);
    case Takes::algorithms:
      return wrong_list(value, kAlgorithms);
    case Takes::protocols:
      return wrong_list(value, kProtocols);
    case Takes::devices:
      return wrong_devices(value);
    case Takes::text:
      return value.empty() ? "a word is expected" : "";
  }
  return "";
}

}  // namespace

Status check_nccl_setting(std::string_view name, std::string_view value) {
  const auto* known = std::find_if(std::begin(kNcclVariables), std::end(kNcclVariables),
                                   [&](const NcclVariable& variable) { return name == variable.name; });
  if (known == std::end(kNcclVariables)) {
    std::vector<std::string> names;
    for (const NcclVariable& variable : kNcclVariables) names.emplace_back(variable.name);
    const std::string near = lab::nearest(std::string(name), names);
    return Error{fmt::format("NCCL's user guide has no variable '{}'{}", name,
                             near.empty() ? "" : fmt::format("; did you mean '{}'?", near))};
  }
  if (const std::string wrong = wrong_value(value, *known); !wrong.empty())
    return Error{fmt::format("{}={}: NCCL would not take it; {}", name, value, wrong)};
  return Ok{};
}

std::string without_nvls(std::string_view algorithms) {
  std::vector<std::string> lists;
  for (const std::string& part : parts_of(algorithms, ';')) {
    const size_t colon       = part.find(':');
    const std::string prefix = colon == std::string::npos ? "" : part.substr(0, colon + 1);
    const std::string list   = part.substr(prefix.size());
    if (list.starts_with("^")) {  // all but these: all but these and NVLS
      lists.push_back(prefix + list + (is_among("NVLS", parts_of(list.substr(1), ',')) ? "" : ",NVLS") +
                      (is_among("NVLSTree", parts_of(list.substr(1), ',')) ? "" : ",NVLSTree"));
      continue;
    }
    std::vector<std::string> kept;
    for (const std::string& word : parts_of(list, ','))
      if (!same_word(word, "NVLS") && !same_word(word, "NVLSTree")) kept.push_back(word);
    if (!kept.empty()) lists.push_back(fmt::format("{}{}", prefix, fmt::join(kept, ",")));
  }
  return fmt::format("{}", fmt::join(lists, ";"));
}

}  // namespace fathom::launch
