// The control of a run: what this machine can do at this very moment, sampled in the same rounds as the
// variants. A share of the limit is a ratio of two times of one round, so a slow minute of the machine slows
// both.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/thread_pool.h"
#include "lab/experiment.h"

namespace fathom::lab {

class Control {
 public:
  // For a limit of Limit::memory, flops or load_latency, a call of `cost` over `working_set` bytes (inputs
  // and outputs of one set) by `threads` threads.
  Control(Limit limit, const Cost& cost, int64_t working_set, int threads, ThreadPool& pool);
  ~Control();
  Control(Control&&) noexcept;

  double sample();                     // one measurement: bytes/s, flop/s, or loads/s
  double limit_ns(double rate) const;  // what a call of `cost` takes at that rate
  const std::string& words() const;    // "copy bandwidth of DRAM, 1 thread"
  int threads() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

bool has_control(Limit limit);

// Limit::disk has no control: a read beside the variants would take their queue. Its limit is what doctor
// measured.
struct DiskLimit {
  double bytes_per_s;
  std::string words;
};
std::optional<DiskLimit> disk_limit();

// The time below which a call of `cost` is impossible: from the highest rate ever seen on this machine at the
// level that holds the working set, whatever bounds the experiment. Absent where nothing is declared.
std::optional<double> floor_ns(const Cost& cost, int64_t working_set, int threads);

}  // namespace fathom::lab
