#include "lab/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "core/proc_meminfo.h"
#include "lab/child_protocol.h"
#include "machine/gpu.h"

extern char** environ;

namespace fathom::lab {
namespace {

using nlohmann::json;
using Steady = std::chrono::steady_clock;

constexpr double kPhaseLimitS = 60;
constexpr double kGiB         = 1073741824.0;

int64_t resident_of_one(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Of the child and of the ranks that it forked.
int64_t resident_bytes(pid_t pid) {
  int64_t bytes = resident_of_one(pid);
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", pid));
  for (pid_t child; children >> child;) bytes += resident_of_one(child);
  return bytes;
}

int64_t available_bytes() { return proc_meminfo("MemAvailable").value_or(int64_t{1} << 62); }

// Ours, but the child's first GPU (kExperimentDevice) is the run's; the others follow it. UUIDs mean the same
// GPU whatever the order of CUDA_VISIBLE_DEVICES is here.
std::vector<std::string> child_environment(DeviceId device) {
  constexpr std::string_view kVisible = "CUDA_VISIBLE_DEVICES=";
  const machine::GpuFacts* gpu        = device == DeviceId{} ? nullptr : machine::gpu(device);
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry)
    if (!gpu || !std::string_view(*entry).starts_with(kVisible)) environment.emplace_back(*entry);
  if (!gpu) return environment;
  std::string visible = std::string(kVisible) + gpu->uuid;
  for (int i = 0; i < gpu->count; ++i)
    if (const machine::GpuFacts* other = machine::gpu({i}); i != device.ordinal && other)
      visible += "," + other->uuid;
  environment.push_back(visible);
  return environment;
}

struct Started {
  pid_t pid;
  int events;  // to read
};

Started start_child(const json& options, DeviceId device, const PhaseBoard& board) {
  int fds[2];
  FATHOM_SYSTEM(pipe2(fds, O_CLOEXEC));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Through high numbers first, so that neither source is overwritten before it is used.
  posix_spawn_file_actions_adddup2(&actions, fds[1], 100);
  posix_spawn_file_actions_adddup2(&actions, board.fd(), 101);
  posix_spawn_file_actions_adddup2(&actions, 100, kEventsFd);
  posix_spawn_file_actions_adddup2(&actions, 101, kPhaseFd);
  posix_spawn_file_actions_addclose(&actions, 100);
  posix_spawn_file_actions_addclose(&actions, 101);
  // The parent's stdout is for data alone.
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  const std::string argument           = options.dump();
  char* const argv[]                   = {const_cast<char*>("fathom"), const_cast<char*>("__experiment"),
                                          const_cast<char*>(argument.c_str()), nullptr};
  std::vector<std::string> environment = child_environment(device);
  std::vector<char*> envp;
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);
  pid_t pid       = 0;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv, envp.data());
  posix_spawn_file_actions_destroy(&actions);
  close(fds[1]);
  if (error != 0) {
    close(fds[0]);
    throw SystemError(fmt::format("could not start a process for an experiment: {}", std::strerror(error)));
  }
  return {pid, fds[0]};
}

// A child that nobody watches any more is killed: watching it may throw (lab/run_experiments.h).
class Reaper {
 public:
  explicit Reaper(pid_t pid) : pid_(pid) {}
  ~Reaper() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    wait();
  }
  Reaper(const Reaper&)            = delete;
  Reaper& operator=(const Reaper&) = delete;

  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
};

// The lines that a child writes.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}
  ~LineReader() { close(fd_); }
  LineReader(const LineReader&)            = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Waits at most 100 ms. False: the child has closed its end.
  template <class F>
  bool read_lines(F&& on_line) {
    pollfd ready{fd_, POLLIN, 0};
    if (poll(&ready, 1, 100) <= 0) return true;
    char buffer[65536];
    const ssize_t n = read(fd_, buffer, sizeof buffer);
    if (n > 0) pending_.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = pending_.find('\n')) != std::string::npos; pending_.erase(0, end + 1))
      on_line(pending_.substr(0, end));
    return n != 0;
  }

 private:
  int fd_;
  std::string pending_;
};

}  // namespace

ChildEnding run_child(const ExperimentInfo& experiment, const MeasureOptions& options,
                      const ChildWatcher& watcher) {
  const PhaseBoard board = PhaseBoard::create();
  const Started child    = start_child(child_options(experiment, options), options.run.device, board);
  Reaper reaper(child.pid);
  LineReader events(child.events);
  const RunOptions& run = options.run;
  const auto started    = Steady::now();
  // A Python process may import and compile for longer, and has limits of its own.
  const bool python          = std::any_of(experiment.variants.begin(), experiment.variants.end(),
                                           [](const VariantInfo& v) { return v.python != nullptr; });
  const double phase_limit_s = (python ? 4 : 1) * kPhaseLimitS * run.timeout_multiplier;
  const int64_t memory_limit =
      run.memory_limit_bytes > 0 ? run.memory_limit_bytes : available_bytes() / 10 * 9;

  ChildEnding ending;
  const auto kill_for = [&](Outcome outcome, std::string why) {
    kill(child.pid, SIGKILL);
    ending.outcome = outcome;
    ending.detail  = std::move(why);
  };
  const auto on_line = [&](const std::string& line) {
    const json message = json::parse(line);
    if (message.contains("done")) ending.complete = true;
    watcher.on_message(message);
  };
  while (events.read_lines(on_line)) {
    const PhaseBoard::Phase phase = board.read();
    watcher.on_tick(phase);
    if (ending.outcome != Outcome::ok) continue;  // killed: drain the pipe
    const double running_s = std::chrono::duration<double>(Steady::now() - started).count();
    if (phase.seconds > phase_limit_s) {
      kill_for(Outcome::timeout, fmt::format("still in '{}' after {:.3g} s", phase.phase, phase_limit_s));
    } else if (watcher.suite_seconds_left > 0 && running_s > watcher.suite_seconds_left) {
      kill_for(Outcome::timeout, "suite timeout reached (--suite-timeout)");
      ending.suite_timeout = true;
    } else if (const int64_t resident = resident_bytes(child.pid); resident > memory_limit) {
      kill_for(Outcome::oom, fmt::format("{:.2f} GiB resident in '{}', limit {:.2f} GiB",
                                         static_cast<double>(resident) / kGiB, phase.phase,
                                         static_cast<double>(memory_limit) / kGiB));
    }
  }

  const int status             = reaper.wait();
  const PhaseBoard::Phase last = board.read();
  ending.variant               = last.variant;
  if (!ending.complete && ending.outcome == Outcome::ok) {
    ending.outcome = Outcome::crashed;
    ending.detail  = WIFSIGNALED(status)
                         ? fmt::format("ended by signal {} ({}) in '{}'", WTERMSIG(status),
                                       strsignal(WTERMSIG(status)), last.phase)
                         : fmt::format("ended with exit code {} in '{}'", WEXITSTATUS(status), last.phase);
  }
  return ending;
}

void run_children(const ExperimentInfo& experiment, MeasureOptions options, const ChildWatcher& watcher,
                  ExperimentRecord& record) {
  for (size_t attempt = 0; attempt <= experiment.variants.size(); ++attempt) {
    std::string error;  // the child's own account of its end
    ChildWatcher watching = watcher;
    watching.on_message   = [&](const json& message) {
      if (message.contains("error")) error = message["error"];
      merge_message(message, record, options.done);
      watcher.on_message(message);
    };
    const ChildEnding ending = run_child(experiment, options, watching);
    if (ending.complete) return;
    const bool known         = std::any_of(experiment.variants.begin(), experiment.variants.end(),
                                           [&](const VariantInfo& v) { return v.id == ending.variant; });
    const std::string detail = error.empty() ? ending.detail : error;
    if (!known || ending.suite_timeout) {
      record.status = ending.outcome;
      record.detail = detail;
      return;
    }
    options.failed.push_back({.id = ending.variant, .status = ending.outcome, .detail = detail});
  }
}

}  // namespace fathom::lab
