// Which rank of an expert-parallel group holds which experts, planned from the load of each expert.
//
// EPLB, the expert-parallel load balancer of DeepSeek-AI (2025):
//   1  with several nodes: groups of experts are packed onto nodes, the heaviest first, onto the node with
//      the least load that has room
//   2  in a node, each spare replica goes to the expert with the most load for each replica that it has
//   3  in a node, replicas are packed onto ranks as groups are onto nodes
// Step 2 makes the most loaded replica as small as it can be; steps 1 and 3 are heuristics.
//
// Added here: two replicas of an expert never lie on one rank; a placement that keeps what already lies
// where it is needed; a forecast of loads; and a planner that takes a new placement only where its gain pays
// for the copies. Loads are integers and ties go to the lower index, so a plan is the same on all machines.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fathom::engine {

struct PlacementShape {
  int ranks    = 1;
  int replicas = 0;  // of all experts together; at least one of each expert, at most one on each rank
  // Several nodes: ranks, replicas, groups and experts are multiples of `nodes`, and experts of `groups`; a
  // group's experts lie on one node. Where groups are no multiple of nodes, one plan spans all ranks.
  int groups = 1, nodes = 1;

  int slots_of_rank() const { return (replicas + ranks - 1) / ranks; }  // memory of a rank, in experts
};

// [rank]: its experts, all different.
using ExpertPlacement = std::vector<std::vector<int32_t>>;

// Expert e on rank e % ranks, one replica each.
ExpertPlacement round_robin_placement(int experts, int ranks);

// `load` [experts] counts tokens, each at least 0, their sum below 2^46.
ExpertPlacement eplb_placement(std::span<const int64_t> load, const PlacementShape& shape);

// [expert]: the ranks that hold it, ascending.
std::vector<std::vector<int32_t>> ranks_of_experts(const ExpertPlacement& placement, int experts);

// Tokens of each rank where an expert's are divided evenly among its replicas.
std::vector<double> rank_loads(const ExpertPlacement& placement, std::span<const int64_t> load);

// The largest rank's load over the mean; 1 where there is no load.
double rank_imbalance(const ExpertPlacement& placement, std::span<const int64_t> load);

// Experts that a rank of `next` holds and the same rank of `now` does not: what is copied. The most of any
// rank, since ranks copy at the same time, and of all ranks.
struct ExpertCopies {
  int64_t most_of_a_rank = 0, total = 0;
};
ExpertCopies copies_between(const ExpertPlacement& now, const ExpertPlacement& next);

// `next` with the ranks of each node renumbered (which changes no load), so that few experts are copied:
// pairs of old and new ranks that share most experts are matched first.
ExpertPlacement renumbered_to_copy_little(const ExpertPlacement& now, ExpertPlacement next, int nodes);

// Watches the load of experts and says when another placement pays.
class ExpertPlanner {
 public:
  struct Options {
    PlacementShape shape;
    // The forecast moves 1 / 2^smoothing of the way to each new observation (an exponentially weighted
    // moving average).
    int smoothing = 2;
    // What balance gains: nanoseconds of a rank for each token of an expert, and for how many observations to
    // come a placement is expected to serve.
    double ns_of_token           = 0;
    int64_t horizon_observations = 0;
    // What it costs: bytes of an expert, and the rate at which a rank receives them.
    int64_t expert_bytes        = 0;
    double copied_bytes_of_a_ns = 1;
    // Hysteresis: the gain must exceed the cost by this factor.
    double margin = 1.25;
  };

  struct Plan {
    ExpertPlacement placement;
    bool taken           = false;  // false: it does not pay, and the present placement stays
    double gain_ns       = 0;      // of the most loaded rank, over the horizon
    double cost_ns       = 0;
    int64_t copied_bytes = 0;  // of all ranks
  };

  ExpertPlanner(int experts, ExpertPlacement now, const Options& options);

  // Tokens of each expert since the last observation.
  void observe(std::span<const int64_t> load);
  // By the forecast; with no observation, nothing is taken.
  Plan replan();

  const ExpertPlacement& placement() const { return now_; }
  std::vector<int64_t> forecast() const;  // in tokens, rounded down

 private:
  Options options_;
  ExpertPlacement now_;
  std::vector<int64_t> forecast_;  // in 2^-kFraction tokens
  bool observed_ = false;
};

}  // namespace fathom::engine
