// The shape "session": something long-lived is started (a server, an engine, a training job), a seeded
// workload is replayed against it, and it is stopped. One replay is one sample. Variants differ in
// configuration, never in answers: what a replay returns must be the same for all, token for token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lab/experiment.h"
#include "lab/record.h"
#include "lab/runner.h"

namespace fathom::lab {

// What one replay did, once it has drained.
struct Replay {
  // Of each request, in the workload's order. An empty one was turned away: it is compared with nothing, and
  // a metric should say how many there are.
  std::vector<std::vector<int64_t>> outputs;
  std::map<std::string, Metric> metrics;  // ttft_p95_ns, hit_rate, ...; the time is measured by the harness
};

class Session {
 public:
  virtual ~Session()                  = default;  // stops it
  virtual void prepare(uint64_t seed) = 0;        // makes the workload of that seed, in no measured time
  virtual Replay replay()             = 0;        // returns when nothing is in flight
};

struct SessionVariant {
  std::string id;
  std::function<std::unique_ptr<Session>(const Point&)> start;
  std::vector<std::string> techniques;
  std::string idea;
  Prediction prediction = {};
  int threads           = kAllThreads;  // that its session computes on
};

struct SessionExperiment {
  std::string question;
  std::vector<Axis> axes;
  std::vector<SessionVariant> variants;
  std::vector<std::string> catalog = {};
  Backend backend                  = Backend::cpu;  // cuda: its sessions run on the GPU
  // What is compared: the replay's wall time, or a time that every replay has among its metrics, in
  // nanoseconds, such as "ttft_p50_ns". The record's clock has its name.
  std::string goal = "";
};

ExperimentInfo info_of(const SessionExperiment& experiment);
// Six paired rounds by default, three of a quick run; the interval of a ratio is their range. Where a session
// cannot start because this machine lacks something (Unavailable), its variant is a typed skip.
void measure_session(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events);

}  // namespace fathom::lab
