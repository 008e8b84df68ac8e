// fathom stats: what a trace spends its time in, by API call, kernel, copy and NVTX range.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/output_flags.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "profile/api_summary.h"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

struct StatsFlags {
  std::string path;
  OutputFlags outputs;
};

// The trace itself, or all that lie below a run's folder.
std::vector<std::string> traces_below(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> traces;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("trace") && name.ends_with(".json")) traces.push_back(entry.path().string());
  }
  std::sort(traces.begin(), traces.end());
  if (traces.empty())
    throw UsageError(
        fmt::format("there is no trace*.json below {}; `fathom run --profile` writes some", path));
  return traces;
}

Table table_of(const std::vector<profile::SummaryRow>& rows, std::string_view what) {
  Table table;
  if (rows.empty()) return table;
  auto lines = profile::cells(rows, what);
  for (const std::string& name : lines.front()) {
    const bool words = name == what || name == "range" || name == "kind";
    table.columns.push_back({name, !words, name != "range"});
  }
  table.rows.assign(std::make_move_iterator(lines.begin() + 1), std::make_move_iterator(lines.end()));
  return table;
}

// Plain numbers, with the trace and the table that each row is of.
Table values_of(const std::vector<std::pair<std::string, profile::ApiSummary>>& summaries) {
  Table table{.columns = {{"trace"},
                          {"of"},
                          {"range"},
                          {"name"},
                          {"kind"},
                          {"calls"},
                          {"total_ns"},
                          {"median_ns"},
                          {"min_ns"},
                          {"max_ns"},
                          {"share"}},
              .rows    = {}};
  for (const auto& [path, summary] : summaries)
    for (const auto& [of, rows] : {std::pair("api", &summary.api), std::pair("kernel", &summary.kernels),
                                   std::pair("copy", &summary.copies)})
      for (const profile::SummaryRow& row : *rows)
        table.rows.push_back({path, of, row.range, row.name, row.kind, std::to_string(row.calls),
                              fmt::format("{:.0f}", row.total_ns), fmt::format("{:.0f}", row.median_ns),
                              fmt::format("{:.0f}", row.min_ns), fmt::format("{:.0f}", row.max_ns),
                              fmt::format("{:.6g}", row.share)});
  return table;
}

int stats(const StatsFlags& flags) {
  std::vector<std::pair<std::string, profile::ApiSummary>> summaries;
  for (const std::string& path : traces_below(flags.path))
    summaries.emplace_back(path, value_or_usage_error(profile::read_api_summary(path)));
  const auto json = [&] {
    nlohmann::json all = nlohmann::json::array();
    for (const auto& [path, summary] : summaries) {
      all.push_back(to_json(summary));
      all.back()["trace"] = path;
    }
    return all.size() == 1 ? all.front() : all;
  };
  const auto values = [&] { return values_of(summaries); };
  if (write_outputs(flags.outputs, {json, values, values})) return kExitOk;
  for (const auto& [path, summary] : summaries) {
    fmt::print("{}\n", path);
    for (const Table& table : {table_of(summary.api, "API call"), table_of(summary.kernels, "kernel"),
                               table_of(summary.copies, "copy")})
      if (!table.rows.empty()) fmt::print("\n{}", to_text(table));
    if (const std::string share = profile::set_up_text(summary); !share.empty())
      fmt::print("\n{}", wrapped(share));
    for (const std::string& note : summary.notes) fmt::print("\n{}", wrapped(note));
    fmt::print("\n");
  }
  return kExitOk;
}

}  // namespace

void add_stats(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<StatsFlags>();
  CLI::App& verb = *app.add_subcommand("stats", "Sum a trace by API call, kernel, copy and NVTX range");
  verb.add_option(
          "trace", flags->path,
          "A trace in Chrome's format (trace_*.json of `run --profile`, or PyTorch's profiler), or a run's "
          "folder")
      ->required();
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = stats(*flags); });
}

}  // namespace fathom::cli
