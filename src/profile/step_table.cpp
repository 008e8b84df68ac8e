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

// Kernels and copies sorted by start, without those of unknown times.
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

std::string label(const DeclaredCost& cost) {
  return cost.instance.empty() ? cost.kernel : cost.kernel + " " + cost.instance;
}

bool longer(const StepRow& a, const StepRow& b) { return a.time_ns > b.time_ns; }

// Bytes, the rate that is nearer to its limit, and its share of that. Without limits the rate is that of
// bytes.
std::vector<std::string> rate_cells(const DeclaredCost& cost, double time_ns, const StepLimits& limits) {
  const std::string megabytes = fmt::format("{}{:.4g}", cost.expected ? "~" : "", cost.bytes * 1e-6);
  if (time_ns <= 0) return {megabytes, "", ""};
  const double bytes_per_s = cost.bytes / time_ns * 1e9, flops_per_s = cost.flops / time_ns * 1e9;
  const double of_bytes = limits.read_bytes_per_s ? bytes_per_s / *limits.read_bytes_per_s : 0;
  const double of_flops = limits.flops_per_s ? flops_per_s / *limits.flops_per_s : 0;
  if (of_flops > of_bytes)
    return {megabytes, fmt::format("{:.4g} TFLOP/s", flops_per_s * 1e-12), lab::share_text(of_flops)};
  return {megabytes, fmt::format("{:.4g} GB/s", bytes_per_s * 1e-9),
          limits.read_bytes_per_s ? lab::share_text(of_bytes) : ""};
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
  std::stable_sort(table.rows.begin(), table.rows.end(), longer);
  return table;
}

Activity on_gpu(Activity all, int ordinal) {
  std::erase_if(all.kernels, [&](const lab::KernelRecord& kernel) { return kernel.device != ordinal; });
  std::erase_if(all.copies, [&](const CopyRecord& copy) { return copy.device != ordinal; });
  return all;
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

void add_costs(StepTable& table, const std::vector<DeclaredCost>& costs) {
  for (const DeclaredCost& cost : costs) {
    const auto is_of = [&](const StepRow& row) {
      return row.name.find(cost.kernel) != std::string::npos &&
             row.name.find(cost.instance) != std::string::npos;
    };
    // Rows are longest first, and stay so but for those that join.
    const auto first = std::find_if(table.rows.begin(), table.rows.end(), is_of);
    double launches  = 0;
    for (const StepRow& row : table.rows) launches += is_of(row) ? row.launches : 0;
    if (std::abs(launches - cost.launches) > 0.01 * cost.launches) {
      table.notes.push_back(
          fmt::format("{}: {:.4g} launches a step were seen and {:.4g} declared; no cost is shown",
                      label(cost), launches, cost.launches));
      continue;
    }
    if (first == table.rows.end()) continue;
    for (auto row = first + 1; row != table.rows.end();) {
      if (!is_of(*row)) {
        ++row;
        continue;
      }
      first->launches += row->launches;
      first->time_ns += row->time_ns;
      first->share += row->share;
      row = table.rows.erase(row);
    }
    first->cost = cost;
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), longer);
}

std::vector<std::vector<std::string>> cells(const StepTable& table, const StepLimits& limits) {
  const bool costs                           = std::any_of(table.rows.begin(), table.rows.end(),
                                                           [](const StepRow& row) { return row.cost.has_value(); });
  std::vector<std::vector<std::string>> rows = {{"kernel", "launches", "µs", "share"}};
  if (costs) rows[0].insert(rows[0].end(), {"MB", "rate", "of limit"});
  const auto microseconds = [](double ns) { return fmt::format("{:.1f}", ns / 1e3); };
  const auto add          = [&](std::vector<std::string> row, const std::optional<DeclaredCost>& cost,
                       double time_ns) {
    if (costs) {
      const auto more = cost ? rate_cells(*cost, time_ns, limits) : std::vector<std::string>(3);
      row.insert(row.end(), more.begin(), more.end());
    }
    rows.push_back(std::move(row));
  };
  double launches = 0;
  DeclaredCost all;
  for (const StepRow& row : table.rows) {
    launches += row.launches;
    add({row.cost ? label(*row.cost) : short_name(row.name), fmt::format("{:.4g}", row.launches),
         microseconds(row.time_ns), lab::share_text(row.share)},
        row.cost, row.time_ns);
    if (!row.cost) continue;
    all.bytes += row.cost->bytes;
    all.flops += row.cost->flops;
    all.expected = all.expected || row.cost->expected;
  }
  if (table.steps == 0) return rows;
  add({"nothing ran", "", microseconds(table.gap_ns), lab::share_text(table.gap_ns / table.step_ns)}, {}, 0);
  add({"the step", fmt::format("{:.4g}", launches), microseconds(table.step_ns), ""},
      costs ? std::optional(all) : std::nullopt, table.step_ns);
  return rows;
}

nlohmann::json to_json(const StepTable& table) {
  nlohmann::json rows = nlohmann::json::array();
  for (const StepRow& row : table.rows) {
    nlohmann::json out = {{"name", row.name},           {"launches", row.launches}, {"time_ns", row.time_ns},
                          {"share_of_step", row.share}, {"bytes", nullptr},         {"flops", nullptr},
                          {"bytes_expected", nullptr}};
    if (row.cost) {
      out["bytes"]          = row.cost->bytes;
      out["flops"]          = row.cost->flops;
      out["bytes_expected"] = row.cost->expected;
    }
    rows.push_back(std::move(out));
  }
  return {{"steps", table.steps}, {"step_ns", table.step_ns}, {"gap_ns", table.gap_ns}, {"kernels", rows}};
}

}  // namespace fathom::profile
