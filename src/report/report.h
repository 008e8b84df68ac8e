// The report of a run: one HTML page that opens offline, can be read without its script, prints, and fits a
// phone; and the logbook, a page that lists all runs of an artifacts folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/record.h"
#include "report/context.h"
#include "report/highlights.h"

namespace fathom::report {

std::string report_html(const lab::RunRecord& run, const ReportContext& context = {});

// One line of the logbook: small enough to keep for thousands of runs.
struct RunSummary {
  std::string href;  // from the index to the report: "20260502T100000Z_nightly/report.html"
  std::string label, started, machine;
  Tally tally;
  Aggregate aggregate;
  struct SpeedUp {
    std::string id, variant;  // "ch07/transpose_cpu?n=4096", "tiled"
    lab::Ratio ratio;
    std::optional<double> power_w;  // of the GPU, the median over the point's samples; none on CPUs
  };
  std::vector<SpeedUp> best;  // at most 3: FASTER, not advisory, one an experiment, highest first
};
RunSummary summary_of(const lab::RunRecord& run, std::string href);

std::string index_html(std::vector<RunSummary> runs);  // newest first, whatever the order given

}  // namespace fathom::report
