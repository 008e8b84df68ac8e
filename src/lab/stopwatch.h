// How one sample is timed. On the host: its clocks around the calls, with an audit of the threads. On a GPU:
// events on the stream, with the launches hidden, and a look at whether the device was done when the last
// event said so.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "lab/defence.h"

namespace fathom::lab {

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;

  struct Reading {
    double clock_ns = 0, wall_ns = 0;  // of all calls together, by the experiment's clock and by the wall's
    double cycles                = 0;  // of a GPU's multiprocessors; 0: not known
    std::optional<Caught> caught = {};
    bool late = false;  // what was caught may be a host that was busy: see late_too_often()
  };
  // Times `calls`, which makes the calls of one sample of `variant` with the workers of `pool`. `first`: the
  // process has not made such a call before.
  virtual Reading time(const VariantInfo& variant, ThreadPool& pool, const std::function<void()>& calls,
                       bool first) = 0;
  // Work of about that length at the end of a sample, for the A/A control's heavier side.
  virtual void extra_work(double ns) = 0;
  // Repeats `call` until the clock of the device has settled.
  virtual void settle(const std::function<void()>& call) = 0;
  // Everything that was called is done, or an exception says why not.
  virtual void finish() = 0;

  virtual double epoch_ns() const    = 0;  // a sample lasts at least this long, in as many calls
  virtual int64_t most_calls() const = 0;
  virtual StreamRef stream() const   = 0;
  // The device has been held below its clock by heat or current since the last question: that round says
  // nothing.
  virtual bool throttled() { return false; }
  // What happened meanwhile, for the record: clocks, power, temperature; and labels such as "throttled".
  virtual std::map<std::string, double> telemetry() const { return {}; }
};

// `cpus`: what this process may run on, for the threads that libraries start.
std::unique_ptr<Stopwatch> make_stopwatch(const ExperimentInfo& experiment, const std::vector<int>& cpus);

}  // namespace fathom::lab
