#include "cli/fabric_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace fathom::cli {
namespace {

std::string in_us(double seconds) { return fmt::format("{:.1f}", seconds * 1e6); }
std::string in_gb(double bytes_per_s) { return fmt::format("{:.3g}", bytes_per_s * 1e-9); }

std::string host_name_of(const Fabric& fabric, int rank) { return fabric.hosts[static_cast<size_t>(rank)]; }

std::string pair_name(const Fabric& fabric, const FabricPair& pair) {
  const std::string a = host_name_of(fabric, pair.a), b = host_name_of(fabric, pair.b);
  return a == b ? fmt::format("ranks {} and {} ({})", pair.a, pair.b, a)
                : fmt::format("ranks {} ({}) and {} ({})", pair.a, a, pair.b, b);
}

// A row and a column for each rank. `cell(pair, back)`: back where the row is the pair's second rank.
Table matrix(const Fabric& fabric, const std::string& corner,
             const std::function<std::string(const FabricPair&, bool back)>& cell) {
  const auto ranks = static_cast<int>(fabric.hosts.size());
  Table table{.columns = {{corner}}, .rows = {}};
  for (int rank = 0; rank < ranks; ++rank) table.columns.push_back({std::to_string(rank), true});
  for (int row = 0; row < ranks; ++row) {
    table.rows.push_back({fmt::format("{} {}", row, host_name_of(fabric, row))});
    table.rows.back().resize(static_cast<size_t>(ranks) + 1);
    table.rows.back()[static_cast<size_t>(row) + 1] = "-";
  }
  for (const FabricPair& pair : fabric.pairs) {
    table.rows[static_cast<size_t>(pair.a)][static_cast<size_t>(pair.b) + 1] = cell(pair, false);
    table.rows[static_cast<size_t>(pair.b)][static_cast<size_t>(pair.a) + 1] = cell(pair, true);
  }
  return table;
}

int width_of(const Table& table) {
  int width = 0;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    int widest = display_width(table.columns[c].name);
    for (const auto& row : table.rows) widest = std::max(widest, display_width(row[c]));
    width += widest + 2;
  }
  return width;
}

std::vector<const FabricPair*> pairs_of(const Fabric& fabric, PairKind kind) {
  std::vector<const FabricPair*> pairs;
  for (const FabricPair& pair : fabric.pairs)
    if (pair.kind == kind) pairs.push_back(&pair);
  return pairs;
}

// The pair of a kind that is slowest, and how far from the best.
std::string slowest_line(const Fabric& fabric, PairKind kind) {
  const auto pairs = pairs_of(fabric, kind);
  if (pairs.empty()) return "";
  const auto later = [](const FabricPair* x, const FabricPair* y) { return x->latency_s < y->latency_s; };
  const auto rate  = [](const FabricPair* p) { return std::min(p->bytes_per_s[0], p->bytes_per_s[1]); };
  const auto lower = [&](const FabricPair* x, const FabricPair* y) { return rate(x) < rate(y); };
  const FabricPair &late = **std::max_element(pairs.begin(), pairs.end(), later),
                   &soon = **std::min_element(pairs.begin(), pairs.end(), later),
                   &low  = **std::min_element(pairs.begin(), pairs.end(), lower);
  if (pairs.size() == 1)
    return fmt::format("{}: {}: {} us, {} and {} GB/s; there is no other pair to compare with\n",
                       to_string(kind), pair_name(fabric, late), in_us(late.latency_s),
                       in_gb(late.bytes_per_s[0]), in_gb(late.bytes_per_s[1]));
  double most = 0;
  for (const FabricPair* pair : pairs) most = std::max({most, pair->bytes_per_s[0], pair->bytes_per_s[1]});
  return fmt::format(
      "{}, {} pairs: slowest by latency {}: {} us, {:.2g} x the least; by bandwidth {}: {} GB/s, {:.2g} x "
      "the most\n",
      to_string(kind), pairs.size(), pair_name(fabric, late), in_us(late.latency_s),
      late.latency_s / soon.latency_s, pair_name(fabric, low), in_gb(rate(&low)), rate(&low) / most);
}

std::string slow_line(const Fabric& fabric, const FabricPair& pair) {
  std::vector<std::string> what;
  if (pair.slow_latency) what.push_back(fmt::format("latency {} us", in_us(pair.latency_s)));
  for (int way = 0; way < 2; ++way)
    if (pair.slow_bandwidth[way])
      what.push_back(fmt::format("{} GB/s from {} to {}", in_gb(pair.bytes_per_s[way]),
                                 way == 0 ? pair.a : pair.b, way == 0 ? pair.b : pair.a));
  return fmt::format("SLOW: {}: {}\n", pair_name(fabric, pair), fmt::join(what, ", "));
}

}  // namespace

std::string fabric_text(const Fabric& fabric, int columns) {
  const Table latency   = matrix(fabric, "latency, us",
                                 [](const FabricPair&pair, bool) { return in_us(pair.latency_s); }),
              bandwidth = matrix(fabric, "GB/s, row to column", [](const FabricPair&pair, bool back) {
                return in_gb(pair.bytes_per_s[back ? 1 : 0]);
              });
  std::string text;
  if (std::max(width_of(latency), width_of(bandwidth)) <= columns)
    text += to_text(latency, columns) + "\n" + to_text(bandwidth, columns) + "\n";
  else
    text += fmt::format("{} pairs, too many for a matrix of {} columns: --csv or --json has them all\n",
                        fabric.pairs.size(), columns);
  std::string lines;
  for (const PairKind kind : {PairKind::same_host, PairKind::same_nvlink_domain, PairKind::network})
    lines += slowest_line(fabric, kind);
  bool any      = false;
  int64_t wrong = 0;
  for (const FabricPair& pair : fabric.pairs) {
    if (pair.slow()) lines += slow_line(fabric, pair);
    any |= pair.slow();
    wrong += pair.wrong;
    if (pair.wrong > 0)
      lines += fmt::format("WRONG: {}: {} bytes arrived as others than were sent\n", pair_name(fabric, pair),
                           pair.wrong);
  }
  if (const std::string common = slow_in_common(fabric); !common.empty())
    lines += fmt::format("all slow pairs have {} in common: look at its link, and at what else runs there\n",
                         common);
  if (!any && !fabric.pairs.empty())
    lines += fmt::format(
        "no pair is slow: none has {0} times the latency or 1/{0} of the bandwidth of the best of its "
        "kind\n",
        kSlow);
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    text += wrapped(std::string_view(lines).substr(begin, end - begin), columns);
    begin = end + 1;
  }
  return text;
}

Table fabric_table(const Fabric& fabric) {
  Table table{.columns = {{"a", true},
                          {"b", true},
                          {"host a"},
                          {"host b"},
                          {"kind"},
                          {"latency_us", true},
                          {"a_to_b_GB_per_s", true},
                          {"b_to_a_GB_per_s", true},
                          {"wrong", true},
                          {"slow"}},
              .rows    = {}};
  for (const FabricPair& pair : fabric.pairs)
    table.rows.push_back({std::to_string(pair.a), std::to_string(pair.b), host_name_of(fabric, pair.a),
                          host_name_of(fabric, pair.b), to_string(pair.kind), in_us(pair.latency_s),
                          in_gb(pair.bytes_per_s[0]), in_gb(pair.bytes_per_s[1]), std::to_string(pair.wrong),
                          pair.slow() ? "slow" : ""});
  return table;
}

nlohmann::json fabric_json(const Fabric& fabric, const std::string& transport) {
  nlohmann::json pairs = nlohmann::json::array();
  for (const FabricPair& pair : fabric.pairs)
    pairs.push_back({{"a", pair.a},
                     {"b", pair.b},
                     {"kind", to_string(pair.kind)},
                     {"latency_s", pair.latency_s},
                     {"a_to_b_bytes_per_s", pair.bytes_per_s[0]},
                     {"b_to_a_bytes_per_s", pair.bytes_per_s[1]},
                     {"wrong", pair.wrong},
                     {"slow", pair.slow()}});
  const std::string common = slow_in_common(fabric);
  return {{"schema", "fathom.fabric/1"},
          {"ranks", fabric.hosts.size()},
          {"transport", transport},
          {"hosts", fabric.hosts},
          {"pairs", std::move(pairs)},
          {"slow_in_common", common.empty() ? nlohmann::json(nullptr) : nlohmann::json(common)}};
}

}  // namespace fathom::cli
