// The report of a run: one HTML page that opens offline, needs no script, prints, and fits a phone; and the
// logbook, a page that lists all runs of an artifacts folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/record.h"
#include "report/highlights.h"
#include "report/roofline.h"

namespace fathom::report {

// `source_now` maps experiment ids to the hash of their folder today: a record with another hash is marked
// stale. Experiments it lacks are not marked.
std::string report_html(const lab::RunRecord& run, const Roofs& roofs,
                        const std::map<std::string, std::string>& source_now = {});

// One line of the logbook: small enough to keep for thousands of runs.
struct RunSummary {
  std::string href;  // from the index to the report: "20260502T100000Z_nightly/report.html"
  std::string label, started, machine;
  Tally tally;
  Aggregate aggregate;
  struct SpeedUp {
    std::string id, variant;  // "ch07/transpose_cpu?n=4096", "tiled"
    lab::Ratio ratio;
  };
  std::vector<SpeedUp> best;  // at most 3: FASTER, not advisory, one an experiment, highest first
};
RunSummary summary_of(const lab::RunRecord& run, std::string href);

std::string index_html(std::vector<RunSummary> runs);  // newest first, whatever the order given

}  // namespace fathom::report
