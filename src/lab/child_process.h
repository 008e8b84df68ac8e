// One child of a run: the program itself, started anew for one experiment, watched and reaped.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/child_phase.h"
#include "lab/experiment_info.h"
#include "lab/measure_options.h"

namespace fathom::lab {

// How a child ended.
struct ChildEnding {
  bool complete   = false;        // it said so itself
  Outcome outcome = Outcome::ok;  // crashed | timeout | oom where it did not
  std::string detail;
  std::string variant;         // that was running
  bool suite_timeout = false;  // --suite-timeout ended it
};

struct ChildWatcher {
  std::function<void(const nlohmann::json&)> on_message = [](const nlohmann::json&) {};
  std::function<void(const PhaseBoard::Phase&)> on_tick = [](const PhaseBoard::Phase&) {};
  double suite_seconds_left                             = 0;  // 0: no limit
};

// Returns when the child is gone. It is killed when a phase takes longer than 60 s (times
// RunOptions::timeout_multiplier), when its resident memory passes the limit, or when the suite's time is
// over.
ChildEnding run_child(const ExperimentInfo& experiment, const MeasureOptions& options,
                      const ChildWatcher& watcher);

// Children until one comes through, each without the variants that ended the ones before. The points go into
// `record`; where no variant can be blamed, its status says how the last child ended.
void run_children(const ExperimentInfo& experiment, MeasureOptions options, const ChildWatcher& watcher,
                  ExperimentRecord& record);

}  // namespace fathom::lab
