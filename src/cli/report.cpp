// fathom report: writes a run's page again, or the logbook, or the metrics of a run folder as one table.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/output_flags.h"
#include "cli/report_context.h"
#include "cli/run_folder.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/exit_code.h"
#include "report/report.h"

namespace fathom::cli {
namespace {

struct ReportFlags {
  std::string run, artifacts = "artifacts", out, metrics;
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

int report(const ReportFlags& flags) {
  if (!flags.metrics.empty()) {
    const Table table = metrics_table(flags.metrics);
    const auto same   = [&] { return table; };
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
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = report(*flags); });
}

}  // namespace fathom::cli
