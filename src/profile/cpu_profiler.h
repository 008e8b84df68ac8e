// Where this process spends CPU time, with call stacks, while it goes on with its work: for servers.
// (profile/cpu_sampling.h watches calls of one function, without stacks.)
//
// A timer of the process's CPU time interrupts a thread that runs, which notes its stack, as it follows from
// the unwind tables that C++ exceptions need: no permission, no frame pointers. Waiting threads are not seen.
// Where taking samples needs more than kLargestOverhead of the CPU time, they become rarer, and more frequent
// again when it needs less.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fathom::profile {

struct StackCount {
  std::string thread;               // its name
  std::vector<uintptr_t> stack;     // the interrupted instruction, then its callers' calls
  int64_t samples = 0, cpu_ns = 0;  // each sample stands for the time since the one before
};

struct StackProfile {
  std::chrono::system_clock::time_point began;
  std::chrono::nanoseconds lasted{0}, period{0};  // the period at the end
  std::vector<StackCount> stacks;                 // most time first
  int64_t samples = 0, dropped = 0;               // dropped: came faster than they could be kept
  double cpu_s = 0, overhead_s = 0;               // CPU time of the process, and that of taking samples in it
};

class CpuProfiler {
 public:
  static constexpr double kLargestOverhead = 0.01;
  static constexpr std::chrono::microseconds kPeriod{10'300};  // 97 samples a second: in step with nothing

  using Done = std::function<void(const StackProfile&)>;

  // One at a time in a process, and none beside watch_cpu(). Nothing is sampled until somebody asks.
  CpuProfiler();
  ~CpuProfiler();
  CpuProfiler(const CpuProfiler&)            = delete;
  CpuProfiler& operator=(const CpuProfiler&) = delete;

  using Id = int64_t;

  // From any thread. `done` gets the next `duration`, on the profiler's thread, and may ask again. None: the
  // profiler is ending, and `done` is not called.
  std::optional<Id> profile(std::chrono::nanoseconds duration, Done done);
  // Nobody wants that profile any more: its Done is not called, unless it is being called or was.
  void cancel(Id id);

  // Ends what still runs, whose Done get what there is, and returns when they have. Once; the destructor does
  // it too.
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  struct Window;
  struct Usage {
    double cpu_s = 0, overhead_s = 0;
    int64_t dropped = 0;
  };

  void work();
  void read_samples();
  void limit_overhead();
  void drop_samples();
  void arm();
  Usage usage() const;
  StackProfile profile_of(Window& window) const;
  const std::string& thread_name(int id);

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::list<Window> windows_;
  std::list<Window> new_windows_;  // the profiler's thread has not seen them yet
  Id next_id_  = 1;
  bool ending_ = false;
  // Of thread_ alone.
  std::map<int, std::string> thread_names_;
  std::chrono::microseconds period_ = kPeriod;
  bool armed_                       = false;
  Usage checked_;  // when the overhead was last looked at
  std::thread thread_;
};

// In pprof's format (github.com/google/pprof, proto/profile.proto; not compressed), with names of functions:
// `go tool pprof`, Pyroscope, Parca and speedscope read it. Values are samples/count and cpu/nanoseconds, and
// each sample has its thread's name as the label `thread`.
std::string to_pprof(const StackProfile& profile);

// A line for each stack, "fathom-engine;main;serve;forward 12", as flamegraph.pl, inferno and speedscope read
// it: the thread, the outermost function first, and the number of samples.
std::string to_folded(const StackProfile& profile);

}  // namespace fathom::profile
