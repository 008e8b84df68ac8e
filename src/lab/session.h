// Something long-lived that an experiment starts, replays a seeded workload against, drains and stops: an
// engine, a server, a training job. One replay is one sample. Variants differ in configuration and never in
// answers: a replay must return the same for all of them, token for token.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lab/metric.h"

namespace fathom::lab {

struct Replay {
  // Of each request, in the workload's order. Empty: turned away, which only a variant with `.may_refuse` may
  // do; a metric should say how many there are.
  std::vector<std::vector<int64_t>> outputs;
  std::map<std::string, Metric> metrics;  // ttft_p95_ns, hit_rate, ...; the harness measures the time
};

class Session {
 public:
  virtual ~Session()                  = default;  // stops it
  virtual void prepare(uint64_t seed) = 0;        // makes the workload of that seed, untimed
  virtual Replay replay()             = 0;        // returns when nothing is in flight
};

}  // namespace fathom::lab
