#include "profile/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "lab/metric_text.h"
#include "lab/quantity.h"
#include "profile/metrics.h"

namespace fathom::profile {
namespace {

constexpr size_t kLeftAligned = 1;  // the name; the other columns are right-aligned

auto launch_of(const lab::KernelRecord& kernel) {
  return std::tuple(kernel.name, kernel.grid, kernel.block, kernel.cluster, kernel.registers,
                    kernel.static_shared + kernel.dynamic_shared, kernel.local);
}

double duration_ns(const lab::KernelRecord& kernel) {
  return static_cast<double>(kernel.end_ns - kernel.start_ns);
}

// "132x8": without trailing ones.
std::string extent_text(const std::array<int64_t, 3>& extent) {
  std::string text = std::to_string(extent[0]);
  if (extent[1] != 1 || extent[2] != 1) text += fmt::format("x{}", extent[1]);
  if (extent[2] != 1) text += fmt::format("x{}", extent[2]);
  return text;
}

std::string grid_text(const KernelRow& row) {
  const bool clusters = row.cluster[0] * row.cluster[1] * row.cluster[2] > 1;
  return extent_text(row.grid) + (clusters ? " in " + extent_text(row.cluster) : "");
}

std::string bytes_text(int64_t bytes) {
  return bytes >= 10 * 1024 ? fmt::format("{} KiB", lab::digits_text(static_cast<double>(bytes) / 1024))
                            : fmt::format("{} B", bytes);
}

std::string occupancy_text(const KernelRow& row) {
  if (!row.occupancy) return std::string(lab::kAbsent);
  return fmt::format("{:.0f} %, {}", 100 * *row.occupancy, row.limiter);
}

// Columns of UTF-8 text whose characters are all one column wide.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::vector<size_t> widths(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 3);  // the minimum of Markdown's rule
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  return widths;
}

std::string padded(const std::string& text, size_t to, bool left) {
  const std::string space(to - width(text), ' ');
  return left ? text + space : space + text;
}

std::string line(const std::vector<std::string>& row, const std::vector<size_t>& widths,
                 std::string_view between) {
  std::string text;
  for (size_t c = 0; c < row.size(); ++c) {
    if (c > 0) text += between;
    text += padded(row[c], widths[c], c < kLeftAligned);
  }
  return text;
}

nlohmann::json optional_json(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

}  // namespace

KernelTable kernel_table(const std::vector<lab::KernelRecord>& kernels, const lab::Cost& cost) {
  using Launch = decltype(launch_of(kernels.front()));
  std::map<Launch, std::vector<const lab::KernelRecord*>> launches;
  int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
  KernelTable table;
  for (const lab::KernelRecord& kernel : kernels) {
    launches[launch_of(kernel)].push_back(&kernel);
    ++table.kernels;
    table.time_ns += duration_ns(kernel);
    if (kernel.end_ns == 0) continue;  // its times are unknown
    first = std::min(first, kernel.start_ns);
    last  = std::max(last, kernel.end_ns);
  }
  for (const auto& [launch, same] : launches) {
    const lab::KernelRecord& one = *same.front();
    KernelRow row{.name      = one.name,
                  .grid      = one.grid,
                  .block     = one.block,
                  .cluster   = one.cluster,
                  .registers = one.registers,
                  .shared    = one.static_shared + one.dynamic_shared,
                  .local     = one.local,
                  .occupancy = one.occupancy,
                  .limiter   = one.limiter,
                  .calls     = static_cast<int>(same.size()),
                  .counters  = combined_counters(same)};
    for (const lab::KernelRecord* kernel : same) row.time_ns += duration_ns(*kernel);
    if (table.time_ns > 0) row.share = row.time_ns / table.time_ns;
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.time_ns > b.time_ns; });

  if (last > first) {
    table.span_ns      = static_cast<double>(last - first);
    const double bytes = static_cast<double>(cost.read + cost.written);
    if (bytes > 0) table.bytes_per_s = bytes / table.span_ns * 1e9;
    if (cost.flops > 0) table.flops_per_s = cost.flops / table.span_ns * 1e9;
  }
  return table;
}

std::vector<std::vector<std::string>> cells(const KernelTable& table) {
  std::vector<std::vector<std::string>> rows = {{"kernel", "grid", "block", "registers", "shared", "local",
                                                 "occupancy", "calls", "time", "share", "bytes/s", "FLOP/s"}};
  for (const KernelRow& row : table.rows)
    rows.push_back({row.name, grid_text(row), extent_text(row.block), std::to_string(row.registers),
                    bytes_text(row.shared), bytes_text(row.local), occupancy_text(row),
                    std::to_string(row.calls), lab::time_text(row.time_ns), lab::share_text(row.share), "",
                    ""});
  // The declared cost is of the whole call.
  const auto rate = [](const std::optional<double>& value, std::string (*text)(double)) {
    return value ? text(*value) : std::string(lab::kAbsent);
  };
  rows.push_back({"the call, first to last", "", "", "", "", "", "", std::to_string(table.kernels),
                  lab::time_text(table.span_ns), "", rate(table.bytes_per_s, lab::bytes_per_s_text),
                  rate(table.flops_per_s, lab::flops_per_s_text)});
  return rows;
}

std::string to_text(const KernelTable& table) {
  const auto rows = cells(table);
  const auto wide = widths(rows);
  std::string text;
  for (const auto& row : rows) {
    std::string one = line(row, wide, "  ");
    one.erase(one.find_last_not_of(' ') + 1);
    text += one + "\n";
  }
  return text;
}

std::string to_markdown(const KernelTable& table) {
  auto rows = cells(table);
  for (size_t r = 1; r + 1 < rows.size(); ++r)
    rows[r][0] = "`" + rows[r][0] + "`";  // or <32> would be an HTML tag
  const auto wide  = widths(rows);
  std::string text = "| " + line(rows.front(), wide, " | ") + " |\n|";
  for (size_t c = 0; c < wide.size(); ++c)
    text += " " + std::string(wide[c] - 1, '-') + (c < kLeftAligned ? "- |" : ": |");
  text += "\n";
  for (size_t r = 1; r < rows.size(); ++r) text += "| " + line(rows[r], wide, " | ") + " |\n";
  return text;
}

std::string counters_markdown(const KernelTable& table) {
  constexpr size_t kKernelsShown = 3;
  std::vector<const KernelRow*> counted;
  for (const KernelRow& row : table.rows)
    if (!row.counters.empty() && counted.size() < kKernelsShown) counted.push_back(&row);
  if (counted.empty()) return "";
  std::string text = "\n| counter |", rule = "|---|";
  for (const KernelRow* row : counted) {
    text += fmt::format(" `{}` |", row->name);
    rule += "---:|";
  }
  text += " what it means |\n" + rule + "---|\n";
  std::map<std::string, double> names;
  for (const KernelRow* row : counted) names.insert(row->counters.begin(), row->counters.end());
  for (const auto& [name, unused] : names) {
    text += fmt::format("| {} |", name);
    for (const KernelRow* row : counted) {
      const auto value = row->counters.find(name);
      text += fmt::format(" {} |", value == row->counters.end() ? std::string(lab::kAbsent)
                                                                : lab::number_text(value->second));
    }
    text += fmt::format(" {} |\n", meaning(name));
  }
  return text;
}

nlohmann::json to_json(const KernelTable& table) {
  nlohmann::json rows = nlohmann::json::array();
  for (const KernelRow& row : table.rows)
    rows.push_back({{"name", row.name},
                    {"grid", row.grid},
                    {"block", row.block},
                    {"cluster", row.cluster},
                    {"registers_per_thread", row.registers},
                    {"shared_bytes_per_block", row.shared},
                    {"local_bytes_per_thread", row.local},
                    {"theoretical_occupancy", optional_json(row.occupancy)},
                    {"limited_by", row.limiter},
                    {"calls", row.calls},
                    {"time_ns", row.time_ns},
                    {"share_of_time", row.share},
                    {"counters", row.counters}});
  return {{"schema", "fathom.kernels/1"},
          {"kernels", rows},
          {"launches", table.kernels},
          {"time_ns", table.time_ns},
          {"span_ns", table.span_ns},
          {"bytes_per_s", optional_json(table.bytes_per_s)},
          {"flops_per_s", optional_json(table.flops_per_s)}};
}

}  // namespace fathom::profile
