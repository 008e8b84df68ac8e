#include "cli/aa_summary.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/atomic_file.h"
#include "lab/source_hash.h"
#include "lab/target.h"

namespace fathom::cli {
namespace {

bool differs(const lab::VariantRecord& variant) {
  return variant.verdict == "FASTER" || variant.verdict == "SLOWER";
}

constexpr std::string_view kAgain = ":again", kHeavier = ":heavier";  // end a variant's id

bool adds_calls(const lab::VariantRecord& heavier) {
  const auto found = heavier.metrics.find("extra_calls");
  return found != heavier.metrics.end() && found->second.value > 0;
}

// "x: 1.031 [1.022, 1.040]"
std::string with_ratio(const std::string& id, const lab::VariantRecord& variant) {
  if (!variant.ratio) return fmt::format("{}: {}", id, variant.verdict.value_or("no verdict"));
  return fmt::format("{}: {:.3f} [{:.3f}, {:.3f}]", id, variant.ratio->median, variant.ratio->lo,
                     variant.ratio->hi);
}

void add_point(const lab::ExperimentRecord& experiment, const lab::PointRecord& point, AaSummary& summary) {
  bool compared = false;
  for (const lab::VariantRecord& variant : point.variants) {
    if (variant.status != lab::Outcome::ok || !variant.verdict) continue;
    const std::string id = lab::result_id(experiment.id, variant.id, point.at);
    if (variant.id.ends_with(kAgain)) {
      compared = true;
      if (differs(variant)) summary.wrong.push_back(with_ratio(id, variant));
    } else if (variant.id.ends_with(kHeavier)) {
      const bool found = variant.verdict == "SLOWER";
      ++summary.heavier;
      summary.calls += adds_calls(variant);
      summary.calls_found += found && adds_calls(variant);
      if (!found) summary.missed.push_back(with_ratio(id, variant));
    }
  }
  // A session has its control, and no heavier side.
  if (!compared && point.cache == "session" && point.aa) {
    compared = true;
    if (point.aa->advisory)
      summary.wrong.push_back(fmt::format("{}: [{:.3f}, {:.3f}]",
                                          lab::result_id(experiment.id, point.baseline, point.at),
                                          point.aa->lo, point.aa->hi));
  }
  summary.points += compared;
}

nlohmann::json ratio_json(const lab::VariantRecord& variant) {
  nlohmann::json out = {{"verdict", *variant.verdict}};
  if (variant.ratio)
    out.update({{"median", variant.ratio->median}, {"lo", variant.ratio->lo}, {"hi", variant.ratio->hi}});
  return out;
}

// Null where the point has no comparison.
nlohmann::json point_json(const lab::ExperimentRecord& experiment, const lab::PointRecord& point) {
  nlohmann::json out;
  for (const lab::VariantRecord& variant : point.variants) {
    if (variant.status != lab::Outcome::ok || !variant.verdict) continue;
    if (variant.id.ends_with(kAgain)) out["a_a"] = ratio_json(variant);
    if (!variant.id.ends_with(kHeavier)) continue;
    out["injected_slowdown"]          = ratio_json(variant);
    out["injected_slowdown"]["extra"] = adds_calls(variant) ? "calls" : "arithmetic";
  }
  if (out.is_null() && point.cache == "session" && point.aa)
    out["a_a"] = {
        {"verdict", point.aa->advisory ? "differs" : "same"}, {"lo", point.aa->lo}, {"hi", point.aa->hi}};
  if (!out.is_null()) {
    out["id"]     = lab::result_id(experiment.id, point.baseline, point.at);
    out["rounds"] = point.rounds;
  }
  return out;
}

}  // namespace

AaSummary aa_summary(const lab::RunRecord& run) {
  AaSummary summary;
  for (const lab::ExperimentRecord& experiment : run.experiments) {
    const int before = summary.points;
    for (const lab::PointRecord& point : experiment.points) add_point(experiment, point, summary);
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
  const AaSummary summary = aa_summary(run);
  auto points             = nlohmann::json::array();
  for (const lab::ExperimentRecord& experiment : run.experiments)
    for (const lab::PointRecord& point : experiment.points)
      if (nlohmann::json json = point_json(experiment, point); !json.is_null())
        points.push_back(std::move(json));
  return {{"schema", "fathom.aa/1"},
          {"machine", run.machine},
          {"started", run.started},
          {"commit", std::string(lab::build_commit()) + (lab::build_dirty() ? "+" : "")},
          {"compared", summary.points},
          {"false_verdicts", summary.wrong},
          {"injected_slowdown", summary.heavier},
          {"detected", summary.heavier - std::ssize(summary.missed)},
          {"injected_slowdown_by_calls", summary.calls},
          {"detected_by_calls", summary.calls_found},
          {"missed", summary.missed},
          {"not_compared", summary.none},
          {"points", std::move(points)}};
}

std::string record_aa(const std::string& results, const lab::RunRecord& run) {
  const std::filesystem::path folder = std::filesystem::path(results) / run.machine;
  std::filesystem::create_directories(folder);
  const std::string path = folder / "aa.json";
  write_file_atomically(path, aa_json(run).dump(1) + "\n");
  return path;
}

}  // namespace fathom::cli
