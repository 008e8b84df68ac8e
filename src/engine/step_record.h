// One step of an engine, for a log of a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace fathom::engine {

struct StepRecord {
  std::chrono::steady_clock::time_point launched, done;  // done: its tokens are known
  int64_t prompt_rows = 0, decodes = 0;                  // tokens of prompts; sequences that decode
  int64_t tokens = 0;                                    // sampled
  // Of the step's own rows (router_imbalance.h); none where the router does not count, as on a GPU.
  std::optional<double> router_imbalance;
};

}  // namespace fathom::engine
