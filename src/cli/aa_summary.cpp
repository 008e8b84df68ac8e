#include "cli/aa_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/atomic_file.h"
#include "lab/source_hash.h"
#include "lab/target.h"

namespace fathom::cli {
namespace {

constexpr std::string_view kAgain = ":again", kHeavier = ":heavier";  // end a variant's id

bool adds_calls(const lab::VariantRecord& heavier) {
  const auto found = heavier.metrics.find("extra_calls");
  return found != heavier.metrics.end() && found->second.value > 0;
}

// The harness caught a baseline, which does nothing to be caught for.
bool is_accused(const lab::VariantRecord& variant, const lab::PointRecord& point) {
  return variant.id == point.baseline && variant.caught_by.has_value();
}

std::string commit() { return std::string(lab::build_commit()) + (lab::build_dirty() ? "+" : ""); }

double to_4_places(double ratio) { return std::round(1e4 * ratio) / 1e4; }

nlohmann::json ratio_json(const lab::VariantRecord& variant) {
  nlohmann::json out = {{"verdict", *variant.verdict}};
  if (variant.ratio)
    out.update({{"median", to_4_places(variant.ratio->median)},
                {"lo", to_4_places(variant.ratio->lo)},
                {"hi", to_4_places(variant.ratio->hi)}});
  return out;
}

// Null where the point has no comparison.
nlohmann::json point_json(const lab::ExperimentRecord& experiment, const lab::PointRecord& point) {
  nlohmann::json out;
  for (const lab::VariantRecord& variant : point.variants) {
    if (is_accused(variant, point)) out["a_a"] = {{"verdict", "INVALID"}, {"caught_by", *variant.caught_by}};
    if (variant.status != lab::Outcome::ok || !variant.verdict) continue;
    if (variant.id.ends_with(kAgain)) out["a_a"] = ratio_json(variant);
    if (!variant.id.ends_with(kHeavier)) continue;
    out["injected_slowdown"]          = ratio_json(variant);
    out["injected_slowdown"]["extra"] = adds_calls(variant) ? "calls" : "arithmetic";
  }
  // A session has its control, and no heavier side.
  if (out.is_null() && point.cache == "session" && point.aa)
    out["a_a"] = {{"verdict", point.aa->advisory ? "differs" : "same"},
                  {"lo", to_4_places(point.aa->lo)},
                  {"hi", to_4_places(point.aa->hi)}};
  if (!out.is_null()) {
    out["id"]     = lab::result_id(experiment.id, point.baseline, point.at);
    out["rounds"] = point.rounds;
    out["commit"] = commit();
  }
  return out;
}

nlohmann::json points_json(const lab::ExperimentRecord& experiment) {
  auto points = nlohmann::json::array();
  for (const lab::PointRecord& point : experiment.points)
    if (nlohmann::json json = point_json(experiment, point); !json.is_null())
      points.push_back(std::move(json));
  return points;
}

// "ch01/x/plain:again?n=4: 1.031 [1.022, 1.040]"
std::string failed_line(const nlohmann::json& point, std::string_view side, const nlohmann::json& ratio) {
  std::string id = point.at("id");
  id.insert(std::min(id.find('?'), id.size()), side);
  if (!ratio.contains("lo")) return fmt::format("{}: {}", id, ratio.at("verdict").get<std::string>());
  const double lo = ratio.at("lo"), hi = ratio.at("hi");
  if (!ratio.contains("median")) return fmt::format("{}: [{:.3f}, {:.3f}]", id, lo, hi);
  return fmt::format("{}: {:.3f} [{:.3f}, {:.3f}]", id, ratio.at("median").get<double>(), lo, hi);
}

// Adds what a point of a record says.
void add_point(const nlohmann::json& point, AaSummary& summary) {
  if (point.contains("a_a")) {
    ++summary.points;
    const nlohmann::json& ratio = point["a_a"];
    const std::string verdict   = ratio.at("verdict");
    if (verdict == "FASTER" || verdict == "SLOWER")
      summary.wrong.push_back(failed_line(point, kAgain, ratio));
    if (verdict == "INVALID")
      summary.wrong.push_back(fmt::format("{}: caught by {}", point.at("id").get<std::string>(),
                                          ratio.at("caught_by").get<std::string>()));
    if (verdict == "differs") summary.wrong.push_back(failed_line(point, "", ratio));
  }
  if (point.contains("injected_slowdown")) {
    const nlohmann::json& ratio = point["injected_slowdown"];
    const bool found = ratio.at("verdict") == "SLOWER", by_calls = ratio.at("extra") == "calls";
    ++summary.heavier;
    summary.calls += by_calls;
    summary.calls_found += found && by_calls;
    if (!found) summary.missed.push_back(failed_line(point, kHeavier, ratio));
  }
}

void add_counts(nlohmann::json& record) {
  AaSummary summary;
  for (const nlohmann::json& point : record.at("points")) add_point(point, summary);
  record["compared"]                   = summary.points;
  record["false_verdicts"]             = summary.wrong;
  record["injected_slowdown"]          = summary.heavier;
  record["detected"]                   = summary.heavier - std::ssize(summary.missed);
  record["injected_slowdown_by_calls"] = summary.calls;
  record["detected_by_calls"]          = summary.calls_found;
  record["missed"]                     = summary.missed;
}

// A point a line: a record of hundreds stays small.
std::string aa_file(nlohmann::json record) {
  std::string points;
  for (const nlohmann::json& point : record.at("points"))
    points += (points.empty() ? "  " : ",\n  ") + point.dump();
  record["points"]      = nlohmann::json::array();
  std::string text      = record.dump(1) + "\n";
  const std::string end = "\"points\": []";
  return text.replace(text.find(end), end.size(), "\"points\": [\n" + points + "\n ]");
}

}  // namespace

AaSummary aa_summary(const lab::RunRecord& run) {
  AaSummary summary;
  for (const lab::ExperimentRecord& experiment : run.experiments) {
    const int before = summary.points;
    for (const nlohmann::json& point : points_json(experiment)) add_point(point, summary);
    if (summary.points == before) summary.none.push_back(experiment.id);
  }
  return summary;
}

std::string aa_text(const AaSummary& summary) {
  std::string text = fmt::format(
      "A/A: {} false verdicts at {} points; 5 % of extra work found at {} of {} ({:.0f} %)\n",
      summary.wrong.size(), summary.points, summary.heavier - static_cast<int>(summary.missed.size()),
      summary.heavier, 100 * summary.found());
  if (summary.heavier > 0)
    text +=
        fmt::format("  the extra work is more of the same calls at {}, found at {}; elsewhere arithmetic\n",
                    summary.calls, summary.calls_found);
  for (const std::string& id : summary.wrong) text += "  false   " + id + "\n";
  for (const std::string& id : summary.missed) text += "  missed  " + id + "\n";
  if (!summary.none.empty())
    text += fmt::format(
        "  {} experiments without an A/A comparison: skipped here, of ranks, or of processes of "
        "their own\n",
        summary.none.size());
  return text;
}

nlohmann::json aa_json(const lab::RunRecord& run) {
  auto points = nlohmann::json::array();
  for (const lab::ExperimentRecord& experiment : run.experiments)
    for (nlohmann::json& point : points_json(experiment)) points.push_back(std::move(point));
  nlohmann::json record = {{"schema", "fathom.aa/1"},
                           {"machine", run.machine},
                           {"started", run.started},
                           {"commit", commit()},
                           {"not_compared", aa_summary(run).none},
                           {"points", std::move(points)}};
  add_counts(record);
  return record;
}

void add_earlier(nlohmann::json& record, const nlohmann::json& earlier, const lab::RunRecord& run) {
  const auto repeated = [&](const std::string& id) {
    return std::ranges::any_of(run.experiments, [&](const lab::ExperimentRecord& experiment) {
      return id == experiment.id || id.starts_with(experiment.id + "/");
    });
  };
  for (const nlohmann::json& point : earlier.at("points"))
    if (!repeated(point.at("id"))) record["points"].push_back(point);
  for (const nlohmann::json& id : earlier.at("not_compared"))
    if (!repeated(id)) record["not_compared"].push_back(id);
  record["started"] = earlier.at("started");
  add_counts(record);
}

std::string record_aa(const std::string& results, const lab::RunRecord& run) {
  const std::filesystem::path folder = std::filesystem::path(results) / run.machine;
  std::filesystem::create_directories(folder);
  const std::string path = folder / "aa.json";
  nlohmann::json record  = aa_json(run);
  if (std::ifstream file(path); file)
    if (const auto earlier = nlohmann::json::parse(file, nullptr, false);
        earlier.is_object() && earlier.value("schema", "") == record["schema"])
      add_earlier(record, earlier, run);
  write_file_atomically(path, aa_file(record));
  return path;
}

}  // namespace fathom::cli
