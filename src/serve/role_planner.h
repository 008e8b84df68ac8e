// Decides when a worker changes between prefill and decode, as the load shifts between prompts and answers
// (the planner of Dynamo: https://docs.nvidia.com/dynamo, "Planner"). It plans at regular intervals, moves
// one worker at a time, and never goes to and fro under a load that stays. Not safe from several threads at
// once.
#pragma once

#include <cstdint>
#include <optional>

#include "serve/worker_protocol.h"

namespace fathom::serve {

class RolePlanner {
 public:
  struct Options {
    double scale_up = 0.8;  // a pool needs a worker where its pressure is above
    double spare    = 0.6;  // a pool gives one away where its pressure would stay below without it
    // Plans in a row that want the same before a worker moves, and after a move in which none moves.
    int confirmations = 3, cooldown = 3;
  };
  struct Pool {
    int64_t workers    = 0;
    double utilization = 0;  // the mean of its workers, 1: full
    // P95 of the latency that it is there for (TTFT or ITL), over its target; 0 without a target.
    double latency = 0;
  };
  explicit RolePlanner(const Options& options) : options_(options) {}

  // The role that one worker of the other pool takes on now; none: all stay. Each pool keeps a worker.
  std::optional<WorkerRole> plan(const Pool& prefill, const Pool& decode);

 private:
  double pressure(const Pool& pool) const;
  bool wants(const Pool& needy, const Pool& donor) const;

  const Options options_;
  std::optional<WorkerRole> wanted_;
  int in_a_row_ = 0, resting_ = 0;
};

}  // namespace fathom::serve
