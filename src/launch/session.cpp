#include "launch/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/tcp_group.h"
#include "core/exit_code.h"
#include "core/expect.h"
#include "launch/remote.h"

namespace fathom::launch {
namespace {

// After one rank failed the others have this long to see it themselves and to say so, ...
constexpr std::chrono::seconds kTellTime{3};
// ... after the request to end, this long until they are killed, and after that as long until a host that
// does not say so is given up.
constexpr std::chrono::seconds kEndTime{5};
// How long a host may take to greet: its shell may have much to read.
constexpr std::chrono::seconds kGreetingTime{30};

// How a rank ended.
struct RankEnd {
  enum Kind { exited, signalled, host_lost } kind = exited;
  int code                                        = 0;  // its exit code, or the signal

  bool failed() const { return kind != exited || code != 0; }
};

RankEnd end_of(int status) {
  if (WIFEXITED(status)) return {RankEnd::exited, WEXITSTATUS(status)};
  return {RankEnd::signalled, WTERMSIG(status)};
}

// Tells other hosts every 5 s that the launcher is there. A thread of its own, because the launcher waits
// where its terminal is held.
class SignsOfLife {
 public:
  explicit SignsOfLife(std::vector<int> inputs) : inputs_(std::move(inputs)) {
    if (!inputs_.empty()) thread_ = std::thread([this] { run(); });
  }
  ~SignsOfLife() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    constexpr std::string_view kAlive = "{\"alive\":true}\n";
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kSignOfLife, [&] { return done_; }))
      for (const int input : inputs_)
        (void)send(input, kAlive.data(), kAlive.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  std::vector<int> inputs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

struct LocalRank {
  int rank = 0;
  LaunchedProcess process;
};

class LaunchSession {
 public:
  explicit LaunchSession(LaunchPlan plan)
      : plan_(std::move(plan)), ends_(static_cast<size_t>(plan_.world), RankEnd{}) {
    for (const auto* jobs : {&plan_.here, &plan_.elsewhere})  // the others' are other launchers'
      for (const NodeJob& job : *jobs)
        std::fill_n(ends_.begin() + job.ranks.first, job.ranks.count, std::nullopt);
    sigset_t heard;
    sigemptyset(&heard);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}) sigaddset(&heard, number);
    sigprocmask(SIG_BLOCK, &heard, nullptr);
    signals_ = FATHOM_SYSTEM(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK));
    for (const NodeJob& job : plan_.elsewhere) remotes_.emplace_back(plan_.ssh, job);
  }

  int run() {
    for (const NodeJob& job : plan_.here)
      if (const auto refusal = why_not(job)) return give_up(*refusal);
    if (const auto refusal = meet_hosts()) return give_up(*refusal);
    start();
    std::vector<int> inputs;
    for (const RemoteHost& host : remotes_) inputs.push_back(host.input());
    const SignsOfLife signs(std::move(inputs));
    while (any_alive() || lines_may_come()) {
      wait_for_news();
      read_signals();
      excuse_hosts();
      reap();
      end_on_time();
    }
    // What a rank's own children may still write is not waited for.
    for (LocalRank& local : local_)
      local.process.drain([&](int stream, std::string_view line) { pass_on(local.rank, stream, line); });
    for (RemoteHost& host : remotes_)
      host.process().drain([&](int stream, std::string_view line) { host.hear(stream, line); });
    return verdict();
  }

 private:
  using Clock = LaunchClock;

  bool any_alive() const {
    return std::any_of(ends_.begin(), ends_.end(), [](const auto& end) { return !end; });
  }
  // ssh ends when it has passed on all lines of its host.
  bool lines_may_come() {
    if (!all_ended_at_) all_ended_at_ = Clock::now();
    return Clock::now() < *all_ended_at_ + kEndTime &&
           std::any_of(remotes_.begin(), remotes_.end(),
                       [](const RemoteHost& host) { return host.process().pid > 0; });
  }
  static void pass_on(int rank, int stream, std::string_view line) {
    write_all(stream == 0 ? STDOUT_FILENO : STDERR_FILENO, fmt::format("[{}] {}\n", rank, line));
  }

  // Before a rank starts anywhere, every host has answered: nothing half-started is left where one cannot.
  std::optional<Refusal> meet_hosts() {
    const auto deadline  = Clock::now() + kGreetingTime;
    const auto waits_for = [](const RemoteHost& host) { return !host.greeted(); };
    while (std::any_of(remotes_.begin(), remotes_.end(), waits_for)) {
      wait_for_news();
      read_signals();
      if (forwarded_)
        return Refusal{kExitCrash,
                       fmt::format("ended by signal {} before all hosts had answered", forwarded_)};
      for (RemoteHost& host : remotes_) {
        if (host.process().reap())
          host.process().drain([&](int stream, std::string_view line) { host.hear(stream, line); });
        if (host.refusal()) return host.refusal();
        if (!host.greeted() && host.process().pid == 0) return Refusal{kExitCrash, host.why_no_greeting({})};
        if (!host.greeted() && Clock::now() > deadline)
          return Refusal{kExitCrash, host.why_no_greeting(kGreetingTime)};
      }
    }
    return {};
  }

  void start() {
    int port = plan_.master_port;
    if (port == 0) {
      const auto first = std::find_if(remotes_.begin(), remotes_.end(),
                                      [](const RemoteHost& host) { return host.ranks().first == 0; });
      port             = first != remotes_.end() ? first->free_port() : comm::free_tcp_port();
    }
    for (NodeJob& job : plan_.here) {
      job.master_address = plan_.master_address;
      job.master_port    = port;
      if (const std::string note = nccl_note(job); !note.empty())
        fmt::print(stderr, "fathom launch: {}\n", note);
      std::vector<LaunchedProcess> started = start_ranks(job);
      for (size_t i = 0; i < started.size(); ++i)
        local_.push_back({job.ranks.first + static_cast<int>(i), std::move(started[i])});
    }
    for (RemoteHost& host : remotes_) host.order(plan_.master_address, port);
  }

  void wait_for_news() {
    std::vector<pollfd> watched = {{signals_, POLLIN, 0}};
    const auto watch            = [&](const LaunchedProcess& process) {
      for (const LineStream& stream : process.streams) watched.push_back({stream.from, POLLIN, 0});
    };
    for (const LocalRank& local : local_) watch(local.process);
    for (const RemoteHost& host : remotes_) watch(host.process());
    if (poll(watched.data(), watched.size(), 100) <= 0) return;
    size_t next     = 1;
    const auto read = [&](LaunchedProcess& process, const auto& on_line) {
      for (int s = 0; s < 2; ++s)
        if (const bool ready = watched[next++].revents; ready && process.streams[s].from >= 0)
          process.streams[s].read_lines([&](std::string_view line) { on_line(s, line); });
    };
    for (LocalRank& local : local_)
      read(local.process, [&](int stream, std::string_view line) { pass_on(local.rank, stream, line); });
    for (RemoteHost& host : remotes_)
      read(host.process(), [&](int stream, std::string_view line) { host.hear(stream, line); });
  }

  // A terminal that is held (Ctrl-S) holds the launcher in a write: what hosts said meanwhile is still to be
  // read.
  void excuse_hosts() {
    if (const auto held = Clock::now() - turn_at_; held > std::chrono::seconds(1))
      for (RemoteHost& host : remotes_) host.excuse(held);
    turn_at_ = Clock::now();
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      if (const auto number = static_cast<int>(info.ssi_signo); number != SIGCHLD) {
        forwarded_ = number;
        signal_all(number);
      }
  }
  void signal_all(int number) {
    for (const LocalRank& local : local_) local.process.signal(number);
    for (RemoteHost& host : remotes_) host.signal(number);
  }

  void reap() {
    for (LocalRank& local : local_)
      if (local.process.reap()) ended(local.rank, end_of(*local.process.status));
    for (RemoteHost& host : remotes_) {
      const bool over = host.process().reap();
      if (over) host.process().drain([&](int stream, std::string_view line) { host.hear(stream, line); });
      for (const auto& [rank, status] : host.take_ended()) ended(rank, end_of(status));
      if (host.refusal() && !refusal_) refusal_ = host.refusal();
      if (over || host.silent()) lose(host);
    }
    if (refusal_ && !ended_at_) end_all(SIGTERM);
  }

  void ended(int rank, RankEnd end) {
    if (rank < 0 || rank >= plan_.world || ends_[static_cast<size_t>(rank)]) return;
    ends_[static_cast<size_t>(rank)] = end;
    if (end.failed() && !failed_at_) failed_at_ = Clock::now();
    if (end.failed() && !ended_at_) first_failures_.push_back(rank);
  }

  // Nothing more is heard of this host's ranks. They end themselves there (follower.h).
  void lose(RemoteHost& host) {
    std::vector<int> lost;
    for (int rank = host.ranks().first; rank < host.ranks().first + host.ranks().count; ++rank)
      if (!ends_[static_cast<size_t>(rank)]) lost.push_back(rank);
    if (lost.empty()) return;
    if (!host.refusal() && !ended_at_)
      fmt::print(stderr,
                 "fathom launch: the connection to {} was lost ({}): rank{} {} there {} taken as ended\n",
                 host.name(), host.how_ssh_ended(), lost.size() > 1 ? "s" : "", fmt::join(lost, ", "),
                 lost.size() > 1 ? "are" : "is");
    for (const int rank : lost) ended(rank, {RankEnd::host_lost, 0});
    host.process().signal(SIGTERM);  // where it is only silent
  }

  void end_on_time() {
    const auto now = Clock::now();
    if (failed_at_ && now > *failed_at_ + kTellTime && !ended_at_) end_all(SIGTERM);
    if (ended_at_ && now > *ended_at_ + kEndTime) signal_all(SIGKILL);
    if (ended_at_ && now > *ended_at_ + 2 * kEndTime)
      for (RemoteHost& host : remotes_) lose(host);
  }

  void end_all(int number) {
    if (!ended_at_) ended_at_ = Clock::now();
    signal_all(number);
  }

  // Of the ranks that failed before any was ended, those of a lost host are the cause, else one that a signal
  // killed, else the first.
  int verdict() {
    if (refusal_) return give_up(*refusal_);
    if (first_failures_.empty()) return kExitOk;
    int culprit = first_failures_.front();
    for (const RankEnd::Kind kind : {RankEnd::signalled, RankEnd::host_lost})
      for (auto rank = first_failures_.rbegin(); rank != first_failures_.rend(); ++rank)
        if (end(*rank).kind == kind) culprit = *rank;
    const char* rest = forwarded_ ? "" : "; that ended all";
    switch (end(culprit).kind) {
      case RankEnd::exited:
        fmt::print(stderr, "fathom launch: rank {} ended with exit code {}{}\n", named(culprit),
                   end(culprit).code, rest);
        return end(culprit).code;
      case RankEnd::signalled:
        fmt::print(stderr, "fathom launch: rank {} was ended by signal {} ({}){}\n", named(culprit),
                   end(culprit).code, strsignal(end(culprit).code), rest);
        return kExitCrash;
      case RankEnd::host_lost:
        fmt::print(stderr, "fathom launch: {} was lost{}\n", host_of(culprit), rest);
        return kExitCrash;
    }
    return kExitCrash;
  }

  const RankEnd& end(int rank) const { return *ends_[static_cast<size_t>(rank)]; }
  std::string host_of(int rank) const {
    for (const RemoteHost& host : remotes_)
      if (rank >= host.ranks().first && rank < host.ranks().first + host.ranks().count) return host.name();
    return "";
  }
  std::string named(int rank) const {
    const std::string host = host_of(rank);
    return host.empty() ? std::to_string(rank) : fmt::format("{} on {}", rank, host);
  }

  // ssh ends with this process, and with it what it started (follower.h).
  int give_up(const Refusal& why) {
    fmt::print(stderr, "fathom launch: {}\n", why.text);
    for (RemoteHost& host : remotes_) host.process().signal(SIGTERM);
    return why.exit_code;
  }

  LaunchPlan plan_;
  int signals_ = -1;
  std::deque<LocalRank> local_;
  std::deque<RemoteHost> remotes_;
  std::vector<std::optional<RankEnd>> ends_;  // of each rank
  std::vector<int> first_failures_;
  std::optional<Refusal> refusal_;
  Clock::time_point turn_at_ = Clock::now();
  std::optional<Clock::time_point> failed_at_, ended_at_, all_ended_at_;
  int forwarded_ = 0;
};

}  // namespace

int run_launch(LaunchPlan plan) { return LaunchSession(std::move(plan)).run(); }

}  // namespace fathom::launch
