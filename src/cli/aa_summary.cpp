#include "cli/aa_summary.h"

#include <fmt/format.h>

#include "lab/target.h"

namespace fathom::cli {
namespace {

bool differs(const lab::VariantRecord& variant) {
  return variant.verdict == "FASTER" || variant.verdict == "SLOWER";
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
    if (variant.id.ends_with(":again")) {
      compared = true;
      if (differs(variant)) summary.wrong.push_back(with_ratio(id, variant));
    } else if (variant.id.ends_with(":heavier")) {
      ++summary.heavier;
      if (variant.verdict != "SLOWER") summary.missed.push_back(with_ratio(id, variant));
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
  for (const std::string& id : summary.wrong) text += "  false   " + id + "\n";
  for (const std::string& id : summary.missed) text += "  missed  " + id + "\n";
  if (!summary.none.empty())
    text += fmt::format(
        "  {} experiments without an A/A comparison: skipped here, of ranks, or of processes of "
        "their own\n",
        summary.none.size());
  return text;
}

}  // namespace fathom::cli
