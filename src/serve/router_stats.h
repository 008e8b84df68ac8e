// What a router counts, for GET /worker/status and /metrics.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/dynamic_routing.h"
#include "serve/worker_protocol.h"

namespace fathom::serve {

// Why a request left its worker for another attempt.
enum class MoveCause {
  dead,     // no answer about its status, or a restart
  stalled,  // it answers, but its engine makes no step
  slow,     // ejected (outlier_ejection.h)
  broken,   // the stream broke, had a gap, or the worker gave the request up
};
inline constexpr std::array<std::string_view, 4> kMoveCauses = {"dead", "stalled", "slow", "broken"};

struct RouterStats {
  // Counters since the start.
  int64_t replays        = 0;  // attempts after a first one
  int64_t dropped_events = 0;  // of ended attempts
  int64_t ejections      = 0;
  int64_t role_changes   = 0;  // by the planner
  std::array<int64_t, kMoveCauses.size()> moves{};
  std::array<int64_t, DynamicRouting::kDecisionNames.size()> decisions{};
  // Gauges. A worker takes requests where it is alive, ready and progressing, and not ejected unless the
  // others are gone.
  struct Worker {
    std::string address, incarnation, refusal;  // why it is not ready, "" where it is
    WorkerRole role    = WorkerRole::both;
    bool alive         = false;  // answers
    bool ready         = false;  // is a worker of this model
    bool progressing   = false;  // its engine makes steps, or has nothing to do
    bool ejected       = false;
    int64_t requests   = 0;
    double utilization = 0;
  };
  std::vector<Worker> workers;
};

}  // namespace fathom::serve
