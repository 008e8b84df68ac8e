// Runs experiments, each in a child process of its own: the program itself, started anew. A crash, a hang or
// a runaway allocation costs one variant; what was finished before it stays, and the rest of the experiment
// goes on without it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/experiment.h"
#include "lab/profiler.h"
#include "lab/record.h"

namespace fathom::lab {

struct Selection {
  std::string experiment;             // id
  std::vector<std::string> variants;  // empty: all. The baseline always runs: ratios need it.
};

struct RunOptions {
  std::vector<Selection> targets;
  std::vector<Axis> axes;              // override the declared ones
  bool quick                 = false;  // one point, 40 rounds, 3 s
  bool cold_start            = false;  // every sample in a fresh process, no warm-up
  bool check_only            = false;  // verify: nothing is timed
  int64_t iterations         = 0;      // calls a sample; 0: calibrated
  int64_t warmup             = -1;     // calls before the first round; -1: until steady
  int64_t repeat             = 0;      // cap on rounds; 0: 400 (quick: 40)
  double timeout_multiplier  = 1;      // of the 60 s one call or stage may take
  double suite_timeout_s     = 0;      // 0: none
  int64_t memory_limit_bytes = 0;      // of the child; 0: 90 % of what is available
  uint64_t seed              = 0;      // of inputs and orders; 0: from the clock, recorded in the manifest
  bool aa =
      false;  // instead of the variants: the baseline against itself, and against itself plus 5 % of work
  std::string
      profile_set;     // counters to collect in an untimed pass after the timed ones; empty: no such pass
  std::string folder;  // of the run, for what that pass writes
};

struct Progress {
  std::string experiment, variant, phase;  // phase: "prepare", "check", "warm up", "measure", ...
  int done = 0, total = 0;                 // experiments
  double seconds_left              = 0;    // estimated, of the whole run
  const ExperimentRecord* finished = nullptr;
};
using ProgressSink = std::function<void(const Progress&)>;

// Whether any of its targets is timed against the host's ceilings, which then have to be known first.
bool needs_cpu_ceilings(const RunOptions& options);

// Under whose name the results are kept: the GPU's where all targets run on it, else the host's.
std::string machine_of(const RunOptions& options);

RunRecord run(const RunOptions& options, const ProgressSink& sink);

// The child's whole life: `fathom __experiment <options as JSON>`. Reports to the parent through file
// descriptor 3. `profiler` makes one for RunOptions::profile_set and folder; null: this program has none.
using ProfilerFactory =
    std::function<std::unique_ptr<Profiler>(const std::string& set, const std::string& folder)>;
int child_main(int argc, char** argv, const ProfilerFactory& profiler = nullptr);

}  // namespace fathom::lab
