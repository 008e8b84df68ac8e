// What a run is asked to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/device_id.h"
#include "lab/candidate_library.h"
#include "lab/point.h"

namespace fathom::lab {

struct Selection {
  std::string experiment;             // id
  std::vector<std::string> variants;  // empty: all. The baseline always runs: ratios need it.
};

struct RunOptions {
  std::vector<Selection> targets;
  std::vector<Axis> axes;              // override the declared ones
  std::vector<Candidate> candidates;   // of the only target; add_candidate() knows them
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
  // Instead of the variants, at a point or up to three: the baseline against itself, and against itself plus
  // 5 % of work.
  bool aa         = false;
  DeviceId device = {};  // the GPU that experiments run on
  // Counters to collect in an untimed pass after the timed ones; empty: no such pass.
  std::string profile_set;
  std::vector<std::string> profile_sections;  // in place of the set's counters
  std::string profile_kernels;                // a regular expression; empty: all
  std::string folder;                         // of the run, for what that pass writes
};

}  // namespace fathom::lab
