// A Python process that makes the calls of a variant declared by lab/python_variant.h. It opens the problem's
// buffers (CUDA IPC, or files of shared memory on the host), on a GPU copies them to memory of its own before
// each sample (lab/python_runner.py says why), and enqueues the sample's calls behind a flag. When all are
// enqueued the parent raises the flag, and the process reports the time between two events around the calls,
// as measure/gpu_clock.h does in this process.
//
// What the process could fake is its own time. So the parent keeps its clock, from raising the flag until it
// sees a second one that is raised after the last call. On a GPU no Python runs in between: the GPU waits for
// the one flag and writes the other. The same without calls, before every sample, tells what the flags take.
// What the process reports may lie below what the parent saw, less the flags, by 5 % and 10 us: in some
// sample of each point, and in the median below the least that the parent saw of any (check_clock). Least and
// some, because a busy host lengthens what the parent sees. A process bent on cheating could still compute
// before it is let go, as a variant could on another stream; the floor bounds what that gains. Inputs and
// outputs are verified as any variant's, but on a GPU what a kernel writes beside its copies is not seen.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lab/arena.h"
#include "lab/python_variant.h"

namespace fathom::lab {

struct Caught;

class PythonProcess {
 public:
  // Starts nothing. `script`: its name beside the declaration, until found_in() says where that is.
  PythonProcess(std::string script, double longest_s, bool on_gpu);
  ~PythonProcess();
  PythonProcess(const PythonProcess&)            = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;
  void found_in(const std::string& folder);
  const std::string& script() const { return script_; }

  // prepare(), call() and time() throw Unavailable where Python lacks something, TimedOut where it does not
  // answer in time, and SystemError where it failed or ended, with the last lines that it wrote to stderr.
  // Then the process has ended, and the next prepare() starts another.

  // Starts the process where none runs, hands it `set` and makes a first call on it, which compiles and
  // tunes.
  void prepare(const void* set, const Arena& arena, const PythonArguments& arguments);
  bool knows(const void* set) const { return sets_.count(set) > 0; }
  void add_set(const void* set, const Arena& arena, const PythonArguments& arguments);
  // Makes a call at once; within time() together with all others of the sample.
  void call(const void* set);
  // Before the memory of the set is released.
  void forget(const void* set) noexcept;

  struct Timing {
    double ns   = 0;      // of all calls together, as the process reports
    bool waited = false;  // the calls waited for the GPU before all were enqueued: the time has no meaning
  };
  // `held`: the GPU starts when all is enqueued. Not for the first call on a shape, which may wait for it.
  Timing time(const std::function<void()>& calls, bool held);
  // Compares both clocks over the samples of so many calls since the last prepare().
  std::optional<Caught> check_clock(int64_t calls) const;

  const std::string& library() const { return library_; }  // name, version, flags; known after prepare()

  // All that run, for the audit of processes that variants start.
  static const std::set<pid_t>& running();

 private:
  struct Flags;
  struct Ran {
    double ns = 0, seen_ns = 0;  // reported, and by the parent's clock
    bool waited = false;
  };
  struct Sample {
    int64_t calls;
    double ns, seen_ns, flags_ns;  // reported; by the parent's clock; and of the flags, without calls
  };
  void start();
  void stop() noexcept;
  [[noreturn]] void fail(const std::string& what);
  [[noreturn]] void time_out(double longest_s);
  Ran run(const std::vector<const void*>& sets, bool held);
  void send(const nlohmann::json& question);
  std::optional<nlohmann::json> answer_within(double longest_s);
  nlohmann::json answer(double longest_s);
  std::string last_lines() const;

  std::string script_, library_, unread_;
  double longest_s_;
  bool on_gpu_, gathering_ = false;
  pid_t pid_  = 0;
  int socket_ = -1, log_ = -1, flags_fd_ = -1;
  Flags* flags_    = nullptr;
  uint32_t ticket_ = 0;
  std::set<const void*> sets_;
  std::vector<const void*> gathered_;
  std::vector<Sample> samples_;
};

}  // namespace fathom::lab
