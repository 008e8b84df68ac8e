// The summary of a run: the best variant of each point, the counts over the run, and a geometric mean with
// the experiments it leaves out. The report, the logbook and the command line print these numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/record.h"

namespace fathom::report {

bool is_failed(lab::Outcome outcome);  // wrong, crashed, timeout, oom
// The status or the verdict of the record says INVALID.
bool is_invalid(const lab::VariantRecord& variant);
// The variant ran, was right and is not INVALID, so its numbers may be used.
bool is_valid(const lab::VariantRecord& variant);

// Of kind "optimized" or "engine": neither the baseline nor a library.
bool is_ours(const lab::VariantRecord& variant);

// Null when the record lacks it.
const lab::VariantRecord* baseline_of(const lab::PointRecord& point);
// The valid variant of ours with the highest ratio, null when there is none. Libraries are yardsticks and
// never the best.
const lab::VariantRecord* best_of(const lab::PointRecord& point);
// Skipped as a whole: none of its variants was even tried, at any point.
bool was_skipped(const lab::ExperimentRecord& experiment);
// The baseline differed from itself (A/A), so that every verdict at the point is advisory.
bool is_advisory(const lab::PointRecord& point);
// The point that stands for its experiment in a summary: the first one with a best variant, since experiments
// declare their most telling point first; else the first. Null for an experiment without points.
const lab::PointRecord* headline_point(const lab::ExperimentRecord& experiment);
// Beyond 100 % and the margin of 2 %: the control was slower than the variant, so the share says little.
bool is_above_limit(const lab::VariantRecord& variant);
// Why best_of() is null, for a person: "skipped: needs_cuda", "simd: wrong output". `point` is null for an
// experiment without points.
std::string why_no_best(const lab::ExperimentRecord& experiment, const lab::PointRecord* point);

struct Tally {                      // variants at points, baselines not counted, unless said otherwise
  int experiments = 0, points = 0;  // points that were run
  int faster = 0, slower = 0, same = 0, inconclusive = 0;
  int advisory         = 0;  // verdicts among the above whose A/A control failed
  int invalid          = 0;  // baselines and whole experiments count
  int skipped          = 0;  // baselines count, a whole experiment once
  int failed           = 0;  // wrong, crashed, timeout, oom; baselines count, a whole experiment once
  int predictions_held = 0, predictions_failed = 0;
};
Tally tally_of(const lab::RunRecord& run);

struct Aggregate {
  std::optional<double> mean;  // geometric: of the best ratio at each point, points first, then experiments
  int experiments = 0;         // that it covers
  struct Excluded {
    std::string id;  // with its point where only that one is out
    std::string reason;
  };
  std::vector<Excluded> excluded;
};
Aggregate geometric_mean_of(const lab::RunRecord& run);

std::string point_text(const lab::Point& at);  // "n=4096, dtype=f32", as sentences have it
// "ch07/transpose_cpu?n=4096"; with a variant "ch07/transpose_cpu/tiled?n=4096".
std::string id_at(const lab::ExperimentRecord& experiment, const lab::PointRecord& point,
                  const std::string& variant = "");

}  // namespace fathom::report
