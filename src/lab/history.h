// The history of runs on this machine, in SQLite: the median of every variant in every run, and where it
// changed level. JSON is the format of exchange; deleting this file loses the history and nothing else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "lab/record.h"
#include "measure/change_point.h"

namespace fathom::lab {

// $XDG_STATE_HOME/fathom/history.sqlite, or ~/.local/state/fathom/history.sqlite. FATHOM_HISTORY overrides.
std::string history_path();

// Appends the timed results. A run that is there already (same label, start and machine) is not added again.
// A locked, damaged or unwritable database is an Error with a remedy; nothing is half written.
Status append_history(const std::string& path, const RunRecord& run);

struct HistoryPoint {
  std::string started, label, commit, source_hash;
  double time_ns = 0;
  std::optional<double> ratio;
};

struct Series {
  std::string machine, experiment, variant, at;  // at: "n=4096"
  std::vector<HistoryPoint> points;              // oldest first
};

struct HistoryFilter {
  std::string machine;  // empty: all
  std::string pattern;  // regular expression on "ch07/transpose_cpu/tiled?n=4096"
  int64_t last = 0;     // runs of each series; 0: all
};

// No file: no series.
Result<std::vector<Series>> read_history(const std::string& path, const HistoryFilter& filter = {});

// Change points of the medians; of the ratios where every run has one, because ratios compare across days.
struct SeriesChanges {
  std::vector<measure::ChangePoint> time, ratio;
};
SeriesChanges changes_of(const Series& series);

}  // namespace fathom::lab
