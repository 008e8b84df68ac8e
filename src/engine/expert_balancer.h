// EPLB while an engine serves: counts the tokens of experts, and every so many steps plans where each layer's
// experts go, by the steps of a sliding window. The planner (engine/expert_placement.h) takes a plan only
// where it pays.
//
// What a move costs: experts are views into memory that the ranks of one process share, so nothing is copied.
// But the rank that gets an expert reads its weights once more from memory, where they may have been in the
// cache of another's cores. Costs and gains are in tokens, not in measured time, so that the same load gives
// the same placements everywhere.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "core/view.h"
#include "engine/config.h"
#include "engine/eplb_stats.h"
#include "engine/expert_placement.h"

namespace fathom::engine {

class ExpertBalancer {
 public:
  // Of one step, over all layers: tokens of a rank on average and of each layer's most loaded rank.
  struct StepBalance {
    int64_t step        = 0;  // from 1
    double mean_tokens  = 0;
    int64_t max_tokens  = 0;
    double balancedness = 1;  // mean over max; 1 where there was no token
  };
  // Called for the steps that log_balancedness wants.
  using Log = std::function<void(const StepBalance&)>;

  ExpertBalancer(int64_t layers, int64_t experts, int64_t ranks, const EngineConfig::Eplb& config,
                 Log log = {});

  // [layer]: at first experts in order, as many on each rank as nearly as can be, and replicas of the first
  // ones.
  const std::vector<ExpertPlacement>& placements() const { return placements_; }

  // After a step that did not fail. Tokens since the start, of each expert [layers, experts] and of each rank
  // [layers, ranks]. Returns whether placements() changed, for the next step.
  bool after_step(View<const int64_t, 2> expert_load, View<const int64_t, 2> rank_load);

  const EplbStats& stats() const { return stats_; }

 private:
  StepBalance balance_of_step(View<const int64_t, 2> rank_load);
  std::vector<int64_t> window_load(View<const int64_t, 2> expert_load);
  bool replan(View<const int64_t, 2> window_load);

  const int64_t experts_, ranks_;
  const EngineConfig::Eplb config_;
  const Log log_;
  std::vector<ExpertPlacement> placements_;
  int64_t steps_ = 0;
  // Loads at the beginnings of windows to come, the next one first.
  std::deque<std::vector<int64_t>> window_begins_;
  std::vector<int64_t> last_rank_load_;  // before the latest step
  double interval_mean_ = 0;             // tokens of ranks since the latest plans
  int64_t interval_max_ = 0;
  EplbStats stats_;
};

}  // namespace fathom::engine
