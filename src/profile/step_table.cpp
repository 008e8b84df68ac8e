#include "profile/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lab/quantity.h"

namespace fathom::profile {
namespace {

constexpr size_t kNameColumns = 60;

struct Interval {
  const std::string* name;
  int64_t start_ns, end_ns;
};

// Kernels and copies by their starts; those whose times are unknown are left out.
std::vector<Interval> in_order(const Activity& activity) {
  std::vector<Interval> all;
  for (const lab::KernelRecord& kernel : activity.kernels)
    if (kernel.end_ns > 0) all.push_back({&kernel.name, kernel.start_ns, kernel.end_ns});
  for (const CopyRecord& copy : activity.copies)
    if (copy.end_ns > 0) all.push_back({&copy.name, copy.start_ns, copy.end_ns});
  std::stable_sort(all.begin(), all.end(),
                   [](const Interval& a, const Interval& b) { return a.start_ns < b.start_ns; });
  return all;
}

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Without namespaces, and not longer than a line has room for.
std::string short_name(std::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name.substr(i, 2) == "::" && !text.empty() && in_name(text.back())) {
      while (!text.empty() && in_name(text.back())) text.pop_back();
      ++i;
    } else {
      text += name[i];
    }
  }
  if (text.size() > kNameColumns) text = text.substr(0, kNameColumns - 1) + "…";
  return text;
}

}  // namespace

StepTable step_table(const Activity& activity, int64_t from_ns, int64_t to_ns, int64_t steps) {
  StepTable table;
  if (steps < 1 || to_ns <= from_ns) return table;
  std::map<std::string, StepRow> rows;
  int64_t busy_until = from_ns, gaps = 0;
  for (const Interval& one : in_order(activity)) {
    if (one.end_ns <= from_ns || one.end_ns > to_ns) continue;
    gaps += std::max<int64_t>(0, one.start_ns - busy_until);
    const int64_t start = std::max(one.start_ns, busy_until);
    StepRow& row        = rows[*one.name];
    row.launches += 1;
    row.time_ns += static_cast<double>(std::max<int64_t>(0, one.end_ns - start));
    busy_until = std::max(busy_until, one.end_ns);
  }
  gaps += to_ns - busy_until;

  const auto count = static_cast<double>(steps);
  table.steps      = steps;
  table.step_ns    = static_cast<double>(to_ns - from_ns) / count;
  table.gap_ns     = static_cast<double>(gaps) / count;
  for (auto& [name, row] : rows)
    table.rows.push_back({.name     = name,
                          .launches = row.launches / count,
                          .time_ns  = row.time_ns / count,
                          .share    = row.time_ns / count / table.step_ns});
  std::stable_sort(table.rows.begin(), table.rows.end(),
                   [](const StepRow& a, const StepRow& b) { return a.time_ns > b.time_ns; });
  return table;
}

BatchSteps batch_steps(const Activity& activity, int64_t start_ns, int64_t begun_ns, int64_t last_ns) {
  std::vector<int64_t> ends;
  for (const CopyRecord& copy : activity.copies)
    if (copy.name == "copy device to host" && copy.end_ns > start_ns) ends.push_back(copy.end_ns);
  if (ends.empty()) return {};
  std::sort(ends.begin(), ends.end());
  const auto heard_of = [&](int64_t at_ns) {
    return std::min_element(ends.begin(), ends.end(),
                            [&](int64_t a, int64_t b) { return std::abs(a - at_ns) < std::abs(b - at_ns); });
  };
  const auto begun = heard_of(begun_ns), last = heard_of(last_ns);
  return {.prefill = step_table(activity, start_ns, *begun, 1),
          .decode  = step_table(activity, *begun, *last, last - begun)};
}

std::vector<std::vector<std::string>> cells(const StepTable& table) {
  std::vector<std::vector<std::string>> rows = {{"kernel", "launches", "µs", "share"}};
  const auto microseconds                    = [](double ns) { return fmt::format("{:.1f}", ns / 1e3); };
  double launches                            = 0;
  for (const StepRow& row : table.rows) {
    launches += row.launches;
    rows.push_back({short_name(row.name), fmt::format("{:.4g}", row.launches), microseconds(row.time_ns),
                    lab::share_text(row.share)});
  }
  if (table.steps == 0) return rows;
  rows.push_back(
      {"nothing ran", "", microseconds(table.gap_ns), lab::share_text(table.gap_ns / table.step_ns)});
  rows.push_back({"the step", fmt::format("{:.4g}", launches), microseconds(table.step_ns), ""});
  return rows;
}

nlohmann::json to_json(const StepTable& table) {
  nlohmann::json rows = nlohmann::json::array();
  for (const StepRow& row : table.rows)
    rows.push_back({{"name", row.name},
                    {"launches", row.launches},
                    {"time_ns", row.time_ns},
                    {"share_of_step", row.share}});
  return {{"steps", table.steps}, {"step_ns", table.step_ns}, {"gap_ns", table.gap_ns}, {"kernels", rows}};
}

}  // namespace fathom::profile
