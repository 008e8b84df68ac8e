// fathom launch: a verb as several ranks, each a process of this host.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/number_check.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "comm/tcp_group.h"
#include "core/exit_code.h"
#include "core/expect.h"

extern char** environ;

namespace fathom::cli {
namespace {

using LaunchClock = std::chrono::steady_clock;

// After one rank failed the others have this long to see it themselves and to say so, ...
constexpr std::chrono::seconds kTellTime{1};
// ... and after the request to end, this long until they are killed.
constexpr std::chrono::seconds kEndTime{5};

struct LaunchFlags {
  int ranks = 2, master_port = 0;
  std::vector<std::string> hosts, command;
};

// A stream of a rank, of which each line is passed on with the rank before it.
struct LineStream {
  int from = -1, to = -1;
  std::string pending;

  void pass_on(int rank, std::string_view line) const {
    const std::string text = fmt::format("[{}] {}\n", rank, line);
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = write(to, text.data() + sent, text.size() - sent);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;  // nobody reads it any more
      sent += static_cast<size_t>(n);
    }
  }

  void read_lines(int rank) {
    char buffer[65536];
    const ssize_t n = read(from, buffer, sizeof buffer);
    if (n > 0) pending.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1))
      pass_on(rank, std::string_view(pending).substr(0, end));
    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) return;
    if (!pending.empty()) pass_on(rank, pending);
    close(from);
    from = -1;
  }
};

struct LaunchedRank {
  pid_t pid = 0;  // 0: it has ended
  LineStream streams[2];
  std::optional<int> status;  // of waitpid

  bool failed() const { return status && (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0); }
};

std::vector<std::string> rank_environment(const LaunchFlags& flags, int port, int rank) {
  const std::vector<std::string> ours = {"MASTER_ADDR=127.0.0.1",
                                         fmt::format("MASTER_PORT={}", port),
                                         fmt::format("RANK={}", rank),
                                         fmt::format("LOCAL_RANK={}", rank),
                                         fmt::format("WORLD_SIZE={}", flags.ranks),
                                         fmt::format("LOCAL_WORLD_SIZE={}", flags.ranks)};
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view set(*entry);
    const bool replaced = std::any_of(ours.begin(), ours.end(), [&](const std::string& own) {
      return set.starts_with(own.substr(0, own.find('=') + 1));
    });
    if (!replaced) environment.emplace_back(set);
  }
  environment.insert(environment.end(), ours.begin(), ours.end());
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// A process group of its own, so that Ctrl-C at a terminal reaches it once, through the launcher, and so that
// its own children can be ended with it.
LaunchedRank start_rank(const LaunchFlags& flags, int port, int rank) {
  std::vector<std::string> command = {"fathom"};
  command.insert(command.end(), flags.command.begin(), flags.command.end());
  std::vector<std::string> environment = rank_environment(flags, port, rank);
  const std::vector<char*> argv = pointers(command), envp = pointers(environment);
  const pid_t launcher = getpid();
  int out[2], err[2];
  FATHOM_SYSTEM(pipe2(out, O_CLOEXEC));
  FATHOM_SYSTEM(pipe2(err, O_CLOEXEC));
  const pid_t pid = FATHOM_SYSTEM(fork());
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != launcher) _exit(kExitCrash);  // it died before prctl
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve("/proc/self/exe", argv.data(), envp.data());
    _exit(kExitCrash);
  }
  setpgid(pid, pid);  // whichever comes first
  close(out[1]);
  close(err[1]);
  LaunchedRank started{.pid = pid, .streams = {}, .status = {}};
  started.streams[0] = {.from = out[0], .to = STDOUT_FILENO, .pending = {}};
  started.streams[1] = {.from = err[0], .to = STDERR_FILENO, .pending = {}};
  return started;
}

class Launch {
 public:
  explicit Launch(const LaunchFlags& flags) {
    sigset_t heard;
    sigemptyset(&heard);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}) sigaddset(&heard, number);
    sigprocmask(SIG_BLOCK, &heard, nullptr);
    signals_       = FATHOM_SYSTEM(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK));
    const int port = flags.master_port > 0 ? flags.master_port : comm::free_tcp_port();
    for (int rank = 0; rank < flags.ranks; ++rank) ranks_.push_back(start_rank(flags, port, rank));
  }

  // Returns when all have ended: the exit code.
  int run() {
    while (any_alive()) {
      wait_for_news();
      read_signals();
      reap();
      if (failed_at_ && LaunchClock::now() > *failed_at_ + kTellTime && !ended_at_) end_all(SIGTERM);
      if (ended_at_ && LaunchClock::now() > *ended_at_ + kEndTime) end_all(SIGKILL);
    }
    // What a rank's own children may still write is not waited for.
    for (int rank = 0; rank < size(); ++rank)
      for (LineStream& stream : ranks_[static_cast<size_t>(rank)].streams) {
        if (stream.from < 0) continue;
        fcntl(stream.from, F_SETFL, O_NONBLOCK);
        for (pollfd ready{stream.from, POLLIN, 0}; stream.from >= 0 && poll(&ready, 1, 0) > 0;)
          stream.read_lines(rank);
      }
    return verdict();
  }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }
  bool any_alive() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const LaunchedRank& rank) { return rank.pid > 0; });
  }

  void wait_for_news() {
    std::vector<pollfd> watched = {{signals_, POLLIN, 0}};
    for (const LaunchedRank& rank : ranks_)
      for (const LineStream& stream : rank.streams) watched.push_back({stream.from, POLLIN, 0});
    if (poll(watched.data(), watched.size(), 100) <= 0) return;
    for (int rank = 0; rank < size(); ++rank)
      for (size_t s = 0; s < 2; ++s)
        if (LineStream& stream = ranks_[static_cast<size_t>(rank)].streams[s];
            stream.from >= 0 && watched[1 + 2 * static_cast<size_t>(rank) + s].revents)
          stream.read_lines(rank);
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      if (const auto number = static_cast<int>(info.ssi_signo); number != SIGCHLD) {
        forwarded_ = number;
        for (const LaunchedRank& rank : ranks_)
          if (rank.pid > 0) kill(-rank.pid, number);
      }
  }

  void reap() {
    for (LaunchedRank& rank : ranks_) {
      int status = 0;
      if (rank.pid <= 0 || waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
      rank.pid    = 0;
      rank.status = status;
      if (rank.failed() && !failed_at_) failed_at_ = LaunchClock::now();
      if (rank.failed() && !ended_at_) first_failures_.push_back(static_cast<int>(&rank - ranks_.data()));
    }
  }

  void end_all(int number) {
    if (!ended_at_) ended_at_ = LaunchClock::now();
    for (const LaunchedRank& rank : ranks_)
      if (rank.pid > 0) kill(-rank.pid, number);
  }

  // Of the ranks that failed before any was ended, one that a signal killed is the cause, else the first.
  int verdict() const {
    if (first_failures_.empty()) return kExitOk;
    const auto killed = std::find_if(first_failures_.begin(), first_failures_.end(), [&](int rank) {
      return WIFSIGNALED(*ranks_[static_cast<size_t>(rank)].status);
    });
    const int culprit = killed != first_failures_.end() ? *killed : first_failures_.front();
    const int status  = *ranks_[static_cast<size_t>(culprit)].status;
    const char* rest  = forwarded_ ? "" : "; that ended all";
    if (!WIFSIGNALED(status)) {
      fmt::print(stderr, "fathom launch: rank {} ended with exit code {}{}\n", culprit, WEXITSTATUS(status),
                 rest);
      return WEXITSTATUS(status);
    }
    fmt::print(stderr, "fathom launch: rank {} was ended by signal {} ({}){}\n", culprit, WTERMSIG(status),
               strsignal(WTERMSIG(status)), rest);
    return kExitCrash;
  }

  int signals_ = -1;
  std::vector<LaunchedRank> ranks_;
  std::vector<int> first_failures_;
  std::optional<LaunchClock::time_point> failed_at_, ended_at_;
  int forwarded_ = 0;
};

int launch(const LaunchFlags& flags) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  for (const std::string& host : flags.hosts)
    if (host != "localhost" && host != "127.0.0.1" && host != name)
      throw UsageError(fmt::format(
          "--hosts {}: ranks on other hosts are not built yet; start them there yourself, with MASTER_ADDR, "
          "MASTER_PORT, RANK and WORLD_SIZE set",
          host));
  if (flags.command.front() == "launch") throw UsageError("launch starts another verb, not itself");
  return Launch(flags).run();
}

}  // namespace

void add_launch(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App& verb =
      *app.add_subcommand("launch", "Start a verb as several ranks: launch --ranks 2 -- bench ...");
  verb.add_option("--ranks", flags->ranks, "Processes to start")
      ->check(whole_between(1, 256))
      ->capture_default_str();
  verb.add_option("--hosts", flags->hosts, "Where; this host only, so far")->delimiter(',');
  verb.add_option("--master-port", flags->master_port, "Where ranks meet; 0: any port that is free")
      ->check(whole_between(0, 65535))
      ->capture_default_str();
  verb.add_option("command", flags->command, "After --: a verb of fathom and its arguments")->required();
  verb.footer(
      "Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its\n"
      "environment, as with torchrun. Its lines are printed with [rank] before them, signals are passed on "
      "to\n"
      "all, and where one rank fails the others are ended and its exit code is that of launch.");
  verb.callback([flags, &exit_code] { exit_code = launch(*flags); });
}

}  // namespace fathom::cli
