#include "launch/follower.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/tcp_group.h"
#include "core/exit_code.h"
#include "core/expect.h"
#include "launch/ranks.h"
#include "launch/remote.h"

namespace fathom::launch {
namespace {

// Time for ranks to end after a request, before they are killed.
constexpr std::chrono::seconds kFollowerEndTime{5};
// Ranks are not read while more than this waits for ssh to take it.
constexpr size_t kMostWaiting = 1 << 20;

class Follower {
 public:
  Follower() {
    sigset_t heard;
    sigemptyset(&heard);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}) sigaddset(&heard, number);
    sigprocmask(SIG_BLOCK, &heard, nullptr);
    ::signal(SIGPIPE, SIG_IGN);  // the launcher may go at any time; its ranks must still be ended
    signals_ = FATHOM_SYSTEM(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK));
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    tell({{"fathom_launch", 1}, {"version", launch_version()}, {"port", comm::free_tcp_port()}});
  }

  int run() {
    while (!over()) {
      wait_for_news();
      reap();
      watch_launcher();
    }
    return gone_ ? kExitCrash : kExitOk;
  }

 private:
  bool any_alive() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const LaunchedProcess& rank) { return rank.pid > 0; });
  }
  bool over() const {
    if (any_alive()) return false;
    if (gone_) return true;
    return (job_ || refused_) && waiting_[0].empty() && waiting_[1].empty();
  }

  void tell(const nlohmann::json& message) { waiting_[0] += message.dump() + "\n"; }

  void wait_for_news() {
    const auto wanted = [&](size_t s) {
      return static_cast<short>(waiting_[s].empty() || gone_ ? 0 : POLLOUT);
    };
    std::vector<pollfd> watched = {{signals_, POLLIN, 0},
                                   {gone_ ? -1 : STDIN_FILENO, POLLIN, 0},
                                   {gone_ ? -1 : STDOUT_FILENO, wanted(0), 0},
                                   {gone_ ? -1 : STDERR_FILENO, wanted(1), 0}};
    const size_t first          = watched.size();
    for (const LaunchedProcess& rank : ranks_)
      for (size_t s = 0; s < 2; ++s)
        watched.push_back({waiting_[s].size() < kMostWaiting ? rank.streams[s].from : -1, POLLIN, 0});
    if (poll(watched.data(), watched.size(), 100) <= 0) return;
    if (watched[0].revents) read_signals();
    if (watched[1].revents) read_input();
    for (size_t s = 0; s < 2; ++s)
      if (watched[2 + s].revents) write_waiting(s);
    for (size_t r = 0; first + 2 * r < watched.size(); ++r)
      for (size_t s = 0; s < 2; ++s)
        if (watched[first + 2 * r + s].revents)
          ranks_[r].streams[s].read_lines([&](std::string_view line) { say(r, s, line); });
  }

  void say(size_t local, size_t stream, std::string_view line) {
    if (!gone_)
      waiting_[stream] += fmt::format("[{}] {}\n", job_->ranks.first + static_cast<int>(local), line);
  }

  void write_waiting(size_t s) {
    const ssize_t n = write(s == 0 ? STDOUT_FILENO : STDERR_FILENO, waiting_[s].data(), waiting_[s].size());
    if (n > 0) waiting_[s].erase(0, static_cast<size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) launcher_is_gone();
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      if (info.ssi_signo != SIGCHLD) launcher_is_gone();  // sshd ends its session
  }

  void read_input() {
    char buffer[65536];
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return launcher_is_gone();
    heard_ = LaunchClock::now();
    input_.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = input_.find('\n')) != std::string::npos; input_.erase(0, end + 1))
      obey(nlohmann::json::parse(input_.substr(0, end), nullptr, false));
  }

  void obey(const nlohmann::json& message) {
    if (!message.is_object()) return;
    if (const auto signal = message.find("signal"); signal != message.end() && signal->is_number_integer()) {
      for (const LaunchedProcess& rank : ranks_) rank.signal(*signal);
    } else if (message.contains("order") && !job_) {
      start(message["order"]);
    }
  }

  void start(const nlohmann::json& order) {
    auto job = node_job(order);
    if (!job) return refuse({kExitCrash, job.error().message});
    if (const auto refusal = why_not(*job)) return refuse(*refusal);
    if (const std::string note = nccl_note(*job); !note.empty())
      waiting_[1] += fmt::format("fathom launch: {}\n", note);
    job_   = std::move(*job);
    ranks_ = start_ranks(*job_);
  }

  void refuse(const Refusal& why) {
    refused_ = true;
    tell({{"refused", why.text}, {"exit_code", why.exit_code}});
  }

  void reap() {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (!ranks_[r].reap()) continue;
      ranks_[r].drain([&](int stream, std::string_view line) { say(r, static_cast<size_t>(stream), line); });
      tell({{"ended", job_->ranks.first + static_cast<int>(r)}, {"status", *ranks_[r].status}});
    }
  }

  void watch_launcher() {
    const auto now = LaunchClock::now();
    if (!gone_ && now > heard_ + kSilence + (job_ ? std::chrono::seconds(0) : kOrderTime)) launcher_is_gone();
    if (!gone_ && now > told_ + kSignOfLife && waiting_[0].empty()) {
      tell({{"alive", true}});
      told_ = now;
    }
    if (gone_ && now > *gone_ + kFollowerEndTime)
      for (const LaunchedProcess& rank : ranks_) rank.signal(SIGKILL);
  }

  // Nobody will say when the ranks shall end, and their group may not notice: they end now.
  void launcher_is_gone() {
    if (gone_) return;
    gone_ = LaunchClock::now();
    for (const LaunchedProcess& rank : ranks_) rank.signal(SIGTERM);
  }

  // The launcher gives its order when all hosts have greeted.
  static constexpr std::chrono::seconds kOrderTime{60};

  int signals_ = -1;
  std::optional<NodeJob> job_;
  bool refused_ = false;
  std::vector<LaunchedProcess> ranks_;
  std::string input_, waiting_[2];
  LaunchClock::time_point heard_ = LaunchClock::now(), told_ = heard_;
  std::optional<LaunchClock::time_point> gone_;
};

}  // namespace

int follow_launcher() { return Follower().run(); }

}  // namespace fathom::launch
