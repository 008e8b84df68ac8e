// Runs experiments, each in a child process of its own: the program itself, started anew. A crash, a hang or
// a runaway allocation costs one variant; what was finished before it stays, and the rest of the experiment
// goes on without it.
#pragma once

#include <functional>
#include <string>

#include "lab/record.h"
#include "lab/run_options.h"

namespace fathom::lab {

struct Progress {
  std::string experiment, variant, phase;  // phase: "prepare", "check", "warm up", "measure", ...
  int done = 0, total = 0;                 // experiments
  double seconds_left              = 0;    // estimated, of the whole run
  const ExperimentRecord* finished = nullptr;
};
using ProgressSink = std::function<void(const Progress&)>;

// Runs the targets in order; `sink` gets each record when its experiment has finished. What the sink throws
// ends the run, and the experiment that runs is killed. The options need a seed.
void run_experiments(const RunOptions& options, const ProgressSink& sink);

// Whether any of the targets is timed against the host's ceilings. They have to be known before the first
// experiment: inside one, measuring them would count against the variant that runs then.
bool needs_cpu_ceilings(const RunOptions& options);

// Under which name the results are kept: the GPU's where all targets run on it, else the host's.
std::string machine_of(const RunOptions& options);

}  // namespace fathom::lab
