// fathom report: writes a run's page again, or the logbook, or the metrics of a run folder as one table.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/output_flags.h"
#include "cli/report_context.h"
#include "cli/run_folder.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/exit_code.h"
#include "report/metrics_page.h"
#include "report/report.h"

namespace fathom::cli {
namespace {

struct ReportFlags {
  std::string run, artifacts = "artifacts", out, metrics, page;
  bool index = false;
  OutputFlags outputs;
};

nlohmann::json rows_json(const Table& table) {
  auto rows = nlohmann::json::array();
  for (const auto& row : table.rows) {
    nlohmann::json object;
    for (size_t c = 0; c < row.size(); ++c) object[table.columns[c].name] = row[c];
    if (const auto value = object.find("value"); value != object.end())
      *value = std::stod(value->get<std::string>());
    rows.push_back(std::move(object));
  }
  return {{"schema", "fathom.metrics_table/1"}, {"metrics", rows}};
}

// The metrics of a served model and of the load of its experts, in the order in which a page shows them.
constexpr std::string_view kShownMetrics[] = {"ttft_p50_ns",          "ttft_p95_ns",    "tpot_p50_ns",
                                              "tpot_p95_ns",          "e2e_p95_ns",     "output_tokens_per_s",
                                              "memory_bytes",         "peak_kv_pages",  "router_imbalance",
                                              "expert_load_variance", "rank_imbalance", "dropped_share"};

// `rows` as metrics_table() gives them.
std::vector<report::MetricBars> metric_bars(const std::vector<std::vector<std::string>>& rows) {
  std::map<std::tuple<std::string, std::string, size_t>, report::MetricBars> charts;
  for (const auto& row : rows) {
    const std::string &experiment = row[0], &variant = row[1], &kind = row[2], &at = row[3], &metric = row[4];
    const auto* const known = std::ranges::find(kShownMetrics, metric);
    if (known == std::end(kShownMetrics)) continue;
    auto& chart      = charts[{experiment, at, static_cast<size_t>(known - std::begin(kShownMetrics))}];
    chart.experiment = experiment, chart.at = at, chart.metric = metric;
    chart.higher_is_better = row[6] == "higher";
    const auto place       = kind == "baseline" ? chart.bars.begin() : chart.bars.end();
    chart.bars.insert(place, {variant, std::stod(row[5]), kind == "baseline"});
  }
  std::vector<report::MetricBars> out;
  for (auto& [key, chart] : charts) out.push_back(std::move(chart));
  return out;
}

void write_metrics_page(const ReportFlags& flags, const Table& table) {
  const auto charts = metric_bars(table.rows);
  if (charts.empty())
    throw UsageError(
        fmt::format("no metrics.json below {} has TTFT, throughput, memory or the load of experts: run an "
                    "experiment that serves, such as ch15:monolithic_engine, or ch15:capacity_factor",
                    flags.metrics));
  write_file_atomically(flags.page, report::metrics_page("Metrics of " + flags.metrics, charts));
  fmt::print("{}\n", flags.page);
}

int report(const ReportFlags& flags) {
  if (!flags.page.empty() && flags.metrics.empty())
    throw UsageError("--page shows what --metrics found: name a folder with --metrics");
  if (!flags.metrics.empty()) {
    const Table table = metrics_table(flags.metrics);
    if (!flags.page.empty()) {
      write_metrics_page(flags, table);
      return kExitOk;
    }
    const auto same = [&] { return table; };
    if (!write_outputs(flags.outputs, {[&] { return rows_json(table); }, same, same}))
      fmt::print("{}", to_text(table));
    return kExitOk;
  }
  if (flags.index) {
    write_index(flags.artifacts);
    fmt::print("{}/index.html\n", flags.artifacts);
    return kExitOk;
  }
  namespace fs         = std::filesystem;
  const FoundRun found = find_run(flags.run, flags.artifacts);
  const fs::path beside =
      fs::is_directory(found.path) ? fs::path(found.path) : fs::path(found.path).parent_path();
  const std::string out = flags.out.empty() ? (beside / "report.html").string() : flags.out;
  write_file_atomically(out, report::report_html(found.run, report_context(found.run)));
  fmt::print("{}\n", out);
  return kExitOk;
}

}  // namespace

void add_report(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<ReportFlags>();
  CLI::App& verb = *app.add_subcommand("report", "Write the HTML page of a run, or its metrics as one table");
  verb.add_option("run", flags->run, "A run: its folder or results.json (default: the newest)");
  add_artifacts_flag(verb, flags->artifacts);
  verb.add_option("--out", flags->out, "The page (default: report.html beside the results)");
  verb.add_flag("--index", flags->index, "Only write the logbook of all runs");
  verb.add_option("--metrics", flags->metrics,
                  "Show every metrics.json below this folder as one table instead");
  verb.add_option(
      "--page", flags->page,
      "Write TTFT, TPOT, throughput, memory, router imbalance and the variance of the load of experts "
      "that --metrics finds as a page of bars");
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = report(*flags); });
}

}  // namespace fathom::cli
