// Times one sample. On the host: clocks around the calls, and an audit of the threads. On a GPU: events on
// the stream, with the launches hidden, and a check that the device was idle after the last event.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "lab/verified_call.h"

namespace fathom::lab {

class SampleTimer {
 public:
  virtual ~SampleTimer() = default;

  struct Reading {
    double clock_ns = 0, wall_ns = 0;  // of all calls together, by the experiment's clock and by the wall's
    double cycles                = 0;  // of a GPU's multiprocessors; 0: not known
    std::optional<Caught> caught = {};
    bool doubtful                = false;  // `caught` may be due to a busy host: see doubtful_too_often()
  };
  // Times `calls`, which makes the calls of one sample of `variant` with the workers of `pool`. `first`: the
  // process has not made such a call before.
  virtual Reading time(const VariantInfo& variant, ThreadPool& pool, const std::function<void()>& calls,
                       bool first) = 0;
  // Adds work of about that length to a sample, for the heavier side of the A/A control.
  virtual void extra_work(double ns) = 0;
  // Repeats `call`, one of `variant`, until the clock of the device has settled.
  virtual void settle(const VariantInfo& variant, const std::function<void()>& call) = 0;
  // Runs `untimed` with the device set as a sample of `variant` finds it: with so much L2 set aside.
  virtual void as_in_sample(const VariantInfo&, const std::function<void()>& untimed) { untimed(); }
  // Waits until all calls are done; throws where one failed.
  virtual void finish() = 0;

  virtual double epoch_ns() const    = 0;  // a sample lasts at least this long, in as many calls
  virtual int64_t most_calls() const = 0;
  virtual StreamRef stream() const   = 0;
  // Whether heat or current held the device below its clock since the last question. Such a round is run
  // again.
  virtual bool throttled() { return false; }
  // Clocks, power and temperature during the samples, for the record.
  virtual std::map<std::string, double> telemetry() const { return {}; }
};

// `cpus`: those this process may run on, for the threads that libraries start.
std::unique_ptr<SampleTimer> make_sample_timer(const ExperimentInfo& experiment,
                                               const std::vector<int>& cpus);

}  // namespace fathom::lab
