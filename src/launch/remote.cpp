#include "launch/remote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/exit_code.h"
#include "lab/source_hash.h"

extern char** environ;

namespace fathom::launch {
namespace {

// 'it'\''s', as any shell that a login may have takes it.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The same program at the same place, or else the one that the host's PATH has.
std::string remote_command() {
  const std::string script = fmt::format(
      "p={}; [ -x \"$p\" ] || p=$(command -v fathom) || {{ echo no fathom >&2; exit 127; }}; exec \"$p\" "
      "launch --follow-launcher",
      shell_quoted(this_program()));
  return fmt::format("exec sh -c {}", shell_quoted(script));
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

bool is_openssh(const std::vector<std::string>& words) {
  return std::filesystem::path(words.front()).filename() == "ssh";
}

std::vector<std::string> ssh_arguments(const std::string& ssh, const std::string& host) {
  std::vector<std::string> words = words_of(ssh);
  // OpenSSH keeps the first value of an option, so what the user wrote before wins.
  if (is_openssh(words))
    for (const char* option : {"BatchMode=yes", "ConnectTimeout=10"})
      words.insert(words.end(), {"-o", option});
  words.insert(words.end(), {host, remote_command()});
  return words;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  return environment;
}

// Never waits: ssh reads, or it is about to be taken as lost.
void send_line(int to, const nlohmann::json& message) {
  const std::string line = message.dump() + "\n";
  (void)send(to, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

std::string launch_version() { return fmt::format("{} {}", FATHOM_VERSION, lab::build_commit()); }

std::string host_address(const std::string& ssh, const std::string& host) {
  std::vector<std::string> words = words_of(ssh);
  std::string address            = without_user(host);
  if (!is_openssh(words)) return address;
  words.insert(words.end(), {"-G", host});  // prints its configuration and connects to nothing
  LaunchedProcess asked = start_process({.path        = words.front(),
                                         .arguments   = words,
                                         .environment = own_environment(),
                                         .directory   = "",
                                         .with_input  = false});
  const std::string key = "hostname ";
  while (asked.streams[0].from >= 0)
    asked.streams[0].read_lines([&](std::string_view line) {
      if (line.starts_with(key)) address = line.substr(key.size());
    });
  waitpid(asked.pid, nullptr, 0);
  close(asked.streams[1].from);
  return address;
}

RemoteHost::RemoteHost(const std::string& ssh, NodeJob job) : program_(ssh), job_(std::move(job)) {
  const std::vector<std::string> words = ssh_arguments(ssh, job_.ranks.host);
  ssh_                                 = start_process({.path        = words.front(),
                                                        .arguments   = words,
                                                        .environment = own_environment(),
                                                        .directory   = "",
                                                        .with_input  = true});
}

bool RemoteHost::silent() const { return greeted() && LaunchClock::now() > heard_ + kSilence; }

void RemoteHost::order(const std::string& master_address, int master_port) {
  job_.master_address    = master_address;
  job_.master_port       = master_port;
  const std::string line = nlohmann::json{{"order", to_json(job_)}}.dump() + "\n";
  for (size_t sent = 0; sent < line.size();) {  // may be longer than a socket's buffer
    const ssize_t n = send(ssh_.input, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;  // ssh has ended, which is seen elsewhere
    sent += static_cast<size_t>(n);
  }
}

void RemoteHost::signal(int number) { send_line(ssh_.input, {{"signal", number}}); }

void RemoteHost::hear(int stream, std::string_view line) {
  heard_ = LaunchClock::now();
  if (line.ends_with("\r")) line.remove_suffix(1);  // ssh writes for a terminal
  if (stream == 0 && line.starts_with("{") && hear_message(line)) return;
  const bool of_rank = line.size() > 1 && line[0] == '[' && line[1] >= '0' && line[1] <= '9';
  if (of_rank)
    write_all(stream == 0 ? STDOUT_FILENO : STDERR_FILENO, fmt::format("{}\n", line));
  else if (greeted())
    write_all(STDERR_FILENO, fmt::format("[{}] {}\n", name(), line));
  else if (stream == 1)  // ssh's banners, and why it failed
    said_.emplace_back(line);
}

// False: it is none.
bool RemoteHost::hear_message(std::string_view line) {
  const auto message = nlohmann::json::parse(line, nullptr, false);
  if (!message.is_object()) return false;
  try {
    if (message.contains("fathom_launch")) {
      const std::string theirs = message.at("version");
      if (theirs != launch_version())
        refusal_ = Refusal{kExitUsage,
                           fmt::format("{} has another build of fathom ({}; here {}); install the same on "
                                       "both",
                                       name(), theirs, launch_version())};
      free_port_ = message.at("port");
    } else if (message.contains("refused")) {
      refusal_ = Refusal{message.at("exit_code"), message.at("refused")};
    } else if (message.contains("ended")) {
      ended_[message.at("ended")] = message.at("status");
    } else if (!message.contains("alive")) {
      return false;
    }
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

std::string RemoteHost::how_ssh_ended() const {
  if (!ssh_.status) return "nothing was heard of it for 20 s";
  if (WIFSIGNALED(*ssh_.status))
    return fmt::format("{} was ended by signal {} ({})", program_, WTERMSIG(*ssh_.status),
                       strsignal(WTERMSIG(*ssh_.status)));
  return fmt::format("{} ended with exit code {}", program_, WEXITSTATUS(*ssh_.status));
}

std::string RemoteHost::why_no_greeting(std::optional<std::chrono::seconds> waited) const {
  const std::string by_hand = fmt::format("`{} {} true`", program_, name());
  if (waited)
    return fmt::format("{} did not answer within {} s; {} must work without a question", name(),
                       waited->count(), by_hand);
  const bool exited = ssh_.status && WIFEXITED(*ssh_.status);
  if (exited && WEXITSTATUS(*ssh_.status) == 127) {
    if (said_.empty())
      return fmt::format(
          "{} is no program of this host; install OpenSSH's client, or name another with --ssh",
          program_.substr(0, program_.find(' ')));
    return fmt::format(
        "{0} has no {1}, and no fathom on the PATH of a shell that is no login; copy it there: scp {1} "
        "{0}:{1}",
        name(), this_program());
  }
  const size_t first = said_.size() > 3 ? said_.size() - 3 : 0;
  const std::vector<std::string> last(said_.begin() + static_cast<int64_t>(first), said_.end());
  return fmt::format("no rank can be started on {}: {}{}; {} must work without a question", name(),
                     how_ssh_ended(),
                     last.empty() ? "" : fmt::format(", and said: {}", fmt::join(last, " / ")), by_hand);
}

}  // namespace fathom::launch
