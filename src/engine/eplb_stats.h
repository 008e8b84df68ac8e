// What expert_balancer.h has done so far.
#pragma once

#include <cstdint>
#include <optional>

namespace fathom::engine {

struct EplbStats {
  // Counters. A plan is a placement of one layer's experts.
  int64_t plans_taken = 0, plans_refused = 0;  // refused: it would not have paid, and nothing moved
  int64_t experts_moved = 0;                   // replicas that came to a rank
  double seconds        = 0;                   // for counting and planning, between steps
  // Tokens of experts, added up over steps and layers: of a rank on average, and of each step's and layer's
  // most loaded rank, for which the others wait. Their ratio is vLLM's balancedness; 1 is even.
  double mean_rank_tokens = 0;
  int64_t max_rank_tokens = 0;
  // Gauge: the balancedness of the steps before the latest plans; none before the first.
  std::optional<double> balancedness;
};

}  // namespace fathom::engine
