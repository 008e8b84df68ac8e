#include "cli/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/report_context.h"
#include "cli/usage_error.h"
#include "core/atomic_file.h"
#include "core/expect.h"
#include "lab/json_text.h"
#include "report/report.h"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Replaces characters that are unsafe in file names.
std::string file_name_of(const std::string& label) {
  std::string name;
  for (const char c : label)
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' ? c : '_';
  return name.substr(0, 60);
}

lab::RunRecord without_samples(lab::RunRecord run) {
  for (lab::ExperimentRecord& experiment : run.experiments)
    for (lab::PointRecord& point : experiment.points)
      for (lab::VariantRecord& variant : point.variants) {
        variant.samples_ns.clear();
        variant.quantiles_ns.clear();
      }
  return run;
}

void write_metrics(const std::string& folder, const lab::ExperimentRecord& experiment) {
  std::map<std::string, json> points_of;
  for (const lab::PointRecord& point : experiment.points) {
    const json whole = to_json(point);
    for (json variant : whole["variants"]) {
      variant.erase("samples_ns");
      variant.erase("quantiles_ns");
      variant["at"]        = whole["at"];
      const std::string id = variant["id"];
      points_of[id].push_back(std::move(variant));
    }
  }
  for (const auto& [variant, points] : points_of)
    write_file_atomically(fmt::format("{}/{}/{}/metrics.json", folder, experiment.id, variant),
                          lab::json_text({{"schema", "fathom.metrics/1"},
                                          {"experiment", experiment.id},
                                          {"variant", variant},
                                          {"points", points}}));
}

std::string point_text(const json& at) {
  std::string text;
  for (const auto& [name, value] : at.items())
    text += fmt::format("{}{}={}", text.empty() ? "" : "&", name,
                        value.is_string() ? value.get<std::string>() : value.dump());
  return text;
}

void add_metrics(const json& file, Table& table) {
  const std::string experiment = file.value("experiment", ""), variant = file.value("variant", "");
  for (const json& point : file.value("points", json::array())) {
    const std::string at = point_text(point.value("at", json::object())), kind = point.value("kind", "");
    const auto add = [&](const std::string& name, const json& value, const std::string& better) {
      if (value.is_number())
        table.rows.push_back(
            {experiment, variant, kind, at, name, fmt::format("{:.6g}", value.get<double>()), better});
    };
    const auto part = [&](const char* field, const char* name) {
      const auto found = point.find(field);
      return found != point.end() && found->is_object() ? found->value(name, json()) : json();
    };
    add("time_ns", part("time_ns", "median"), "lower");
    add("ratio", part("ratio", "median"), "higher");
    add("share_of_limit", point.value("share_of_limit", json()), "higher");
    const json metrics = point.value("metrics", json::object());  // items() keeps a reference
    for (const auto& [name, metric] : metrics.items())
      if (metric.is_object()) add(name, metric.value("value", json()), metric.value("better", "higher"));
  }
}

}  // namespace

void add_artifacts_flag(CLI::App& verb, std::string& artifacts) {
  verb.add_option("--artifacts-dir", artifacts, "Where runs are kept")->capture_default_str();
}

std::string make_run_folder(const std::string& artifacts, const std::string& started,
                            const std::string& label) {
  std::string stamp = started;
  std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
  const std::string base = fmt::format("{}/{}_{}", artifacts, stamp, file_name_of(label));
  std::error_code error;
  fs::create_directories(artifacts, error);
  for (int attempt = 1; attempt < 1000; ++attempt) {
    const std::string folder = attempt == 1 ? base : fmt::format("{}-{}", base, attempt);
    if (fs::create_directory(folder, error)) return folder;
    if (error) break;
  }
  throw UsageError(fmt::format("cannot make {}: {}; choose another place with --artifacts-dir", base,
                               error ? error.message() : "too many runs in one second"));
}

void write_results(const std::string& folder, const lab::RunRecord& run) {
  write_file_atomically(folder + "/results.json", lab::json_text(to_json(run)));
}

void print_report_path(const std::string& folder) {
  std::fflush(stdout);
  fmt::print(stderr, "Report: {}/report.html\n",
             std::filesystem::absolute(folder).lexically_normal().string());
}

void write_run(const std::string& artifacts, const std::string& folder, const lab::RunRecord& run,
               const std::string& results) {
  write_results(folder, run);
  write_file_atomically(folder + "/summary.json", lab::json_text(to_json(without_samples(run))));
  write_file_atomically(folder + "/manifest.json", lab::json_text(json::parse(run.manifest)));
  for (const lab::ExperimentRecord& experiment : run.experiments) write_metrics(folder, experiment);
  write_file_atomically(folder + "/report.html", report::report_html(run, report_context(run, results)));
  write_index(artifacts);
}

void write_index(const std::string& artifacts) {
  std::vector<report::RunSummary> summaries;
  for (const std::string& folder : run_folders(artifacts)) {
    const std::string summary = folder + "/summary.json", name = fs::path(folder).filename().string();
    if (!fs::exists(folder + "/report.html") || !fs::exists(summary)) continue;  // unfinished run
    // One broken run must not hide the others.
    if (const auto run = lab::read_run(summary))
      summaries.push_back(report::summary_of(*run, name + "/report.html"));
  }
  write_file_atomically(artifacts + "/index.html", report::index_html(std::move(summaries)));
}

std::vector<std::string> run_folders(const std::string& artifacts) {
  std::vector<std::string> folders;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(artifacts, none))
    if (fs::exists(entry.path() / "results.json")) folders.push_back(entry.path().string());
  std::sort(folders.begin(), folders.end());  // names begin with the time
  return folders;
}

FoundRun find_run(const std::string& given, const std::string& artifacts) {
  std::string path = given;
  if (path.empty()) {
    const auto folders = run_folders(artifacts);
    if (folders.empty())
      throw UsageError(fmt::format(
          "there is no run under {}/; make one with `fathom run`, or name a results.json", artifacts));
    path = folders.back();
  }
  auto run = lab::read_run(path);
  if (!run) throw UsageError(run.error().message);
  return {path, std::move(*run)};
}

Table metrics_table(const std::string& folder) {
  Table table{.columns = {{"experiment", false, false},
                          {"variant"},
                          {"kind"},
                          {"at"},
                          {"metric"},
                          {"value", true},
                          {"better"}},
              .rows    = {}};
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().filename() == "metrics.json") files.push_back(entry->path());
  if (error)
    throw UsageError(fmt::format("cannot read {}: {}; name the folder of a run", folder, error.message()));
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    std::ifstream in(path);
    const json file = json::parse(in, nullptr, false);
    try {
      if (!file.is_object()) throw UsageError("not a JSON object");
      add_metrics(file, table);
    } catch (const std::exception& broken) {
      throw UsageError(fmt::format("{} is broken: {}", path.string(), broken.what()));
    }
  }
  if (files.empty())
    throw UsageError(fmt::format("there is no metrics.json below {}; name the folder of a run", folder));
  return table;
}

}  // namespace fathom::cli
