// The launcher's side of a host that it reaches by ssh.
//
// There, ssh starts this program as `fathom launch --follow-launcher` (follower.h). Both sides speak
// JSON, an object a line: over ssh's input the order of what to start, signals, and every 5 s that the
// launcher is there; over its output a greeting, the ends of ranks, and every 5 s that the host is there.
// Lines of ranks come between them and begin with [rank], as a terminal sees them.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/launched_process.h"
#include "launch/ranks.h"

namespace fathom::launch {

using LaunchClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSignOfLife{5};  // how often each side says that it is there
constexpr std::chrono::seconds kSilence{20};    // after so long without, the other side is taken as lost

std::string launch_version();  // equal on all hosts, or the two do not understand each other

// What ssh's configuration calls the host: other hosts do not know this user's aliases. The name itself where
// `ssh` is not OpenSSH's, or does not say.
std::string host_address(const std::string& ssh, const std::string& host);

class RemoteHost {
 public:
  // Starts ssh and returns. `ssh`: the program and its own arguments, "ssh -F config".
  RemoteHost(const std::string& ssh, NodeJob job);

  const std::string& name() const { return job_.ranks.host; }
  const NodeRanks& ranks() const { return job_.ranks; }
  LaunchedProcess& process() { return ssh_; }
  const LaunchedProcess& process() const { return ssh_; }
  int input() const { return ssh_.input; }

  // What the host has said.
  bool greeted() const { return free_port_ > 0; }
  int free_port() const { return free_port_; }
  const std::optional<Refusal>& refusal() const { return refusal_; }
  std::map<int, int> take_ended() { return std::exchange(ended_, {}); }  // rank: status of waitpid
  bool silent() const;  // for longer than kSilence, after its greeting
  // So long nobody listened to it, because this launcher was held.
  void excuse(LaunchClock::duration held) { heard_ += held; }

  void order(const std::string& master_address, int master_port);
  void signal(int number);  // to its ranks

  void hear(int stream, std::string_view line);
  // Why there was no greeting, and what to do, after ssh has ended or `waited` without one.
  std::string why_no_greeting(std::optional<std::chrono::seconds> waited) const;
  std::string how_ssh_ended() const;

 private:
  bool hear_message(std::string_view line);

  std::string program_;  // ssh, as the user wrote it
  NodeJob job_;
  LaunchedProcess ssh_;
  int free_port_ = 0;
  std::optional<Refusal> refusal_;
  std::map<int, int> ended_;
  std::vector<std::string> said_;  // before the greeting, on standard error
  LaunchClock::time_point heard_;
};

}  // namespace fathom::launch
