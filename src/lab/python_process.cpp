#include "lab/python_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/expect.h"
#include "core/read_file.h"
#include "lab/problem.h"
#include "lab/source_hash.h"
#include "lab/verified_call.h"
#include "measure/clock.h"
#include "measure/statistics.h"

extern char** environ;

namespace fathom::lab {
namespace {

constexpr double kStartS       = 90;  // to import, and for the first call on a shape to compile and tune
constexpr double kLongestHoldS = 2;   // the calls of a sample are enqueued by then
constexpr int kFlagsFd         = 3;   // as in python_runner.py
constexpr double kLongestSpinS = 1e-3;
constexpr double kShareAllowed = 0.05, kNsAllowed = 10e3;

double seconds_now() { return static_cast<double>(measure::now_ns(measure::Clock::wall)) * 1e-9; }

uint64_t id_of(const void* set) { return reinterpret_cast<uintptr_t>(set); }

std::string text_of_script(const std::string& path) {
  auto text = read_file(path);
  FATHOM_EXPECT(text.has_value(), text.error().message);
  return *std::move(text);
}

std::set<pid_t>& processes() {
  static auto& all = *new std::set<pid_t>;  // outlives every process object
  return all;
}

nlohmann::json json_of(const PythonArgument& argument, const Arena& arena) {
  if (!argument.text.empty()) return {{"name", argument.name}, {"value", argument.text}};
  if (!argument.is_buffer) return {{"name", argument.name}, {"value", argument.number}};
  const Arena::Shared shared = arena.shared(argument.data);
  return {{"name", argument.name},       {"allocation", shared.allocation},
          {"offset", shared.offset},     {"bytes", shared.bytes},
          {"guard", shared.guard},       {"type", traits(argument.type).name},
          {"extents", argument.extents}, {"written", argument.written}};
}

// Of a process that has closed its socket. stop() collects it.
std::string how_it_ended(pid_t pid) {
  siginfo_t info{};
  for (int i = 0; i < 100 && info.si_pid == 0; ++i) {
    (void)waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
    if (info.si_pid == 0) usleep(10'000);
  }
  if (info.si_pid == 0) return "closed its answers";
  return info.si_code == CLD_EXITED
             ? fmt::format("ended with exit code {}", info.si_status)
             : fmt::format("ended by signal {} ({})", info.si_status, strsignal(info.si_status));
}

}  // namespace

// On a page of memory that both processes and the GPU access.
struct PythonProcess::Flags {
  alignas(64) std::atomic<uint32_t> go;    // the ticket of the sample that may run
  alignas(64) std::atomic<uint32_t> done;  // and of the last one that has run
};

PythonProcess::PythonProcess(std::string script, double longest_s, bool on_gpu)
    : script_(std::move(script)), longest_s_(longest_s), on_gpu_(on_gpu) {}

PythonProcess::~PythonProcess() { stop(); }

void PythonProcess::found_in(const std::string& folder) {
  if (!script_.starts_with('/'))
    script_ = (std::filesystem::path(folder) / script_).lexically_normal().generic_string();
}

const std::set<pid_t>& PythonProcess::running() { return processes(); }

void PythonProcess::start() {
  stop();
  const size_t page = sizeof(Flags);
  flags_fd_         = FATHOM_SYSTEM(memfd_create("fathom_flags", MFD_CLOEXEC));
  log_              = FATHOM_SYSTEM(memfd_create("fathom_python_log", MFD_CLOEXEC));
  FATHOM_SYSTEM(ftruncate(flags_fd_, sysconf(_SC_PAGESIZE)));
  void* mapped = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, flags_fd_, 0);
  if (mapped == MAP_FAILED) throw SystemError("no page to share with a Python process");
  flags_  = new (mapped) Flags{};
  ticket_ = 0;

  int ends[2];
  FATHOM_SYSTEM(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
  socket_ = ends[0];
  const timeval patience{5, 0};
  FATHOM_SYSTEM(setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log_, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, flags_fd_, kFlagsFd);
  posix_spawn_file_actions_addclosefrom_np(&actions, kFlagsFd + 1);
  const std::string runner(python_source("src/lab/python_runner.py")), parent = std::to_string(getpid());
  char* const argv[] = {const_cast<char*>("python3"), const_cast<char*>("-c"),
                        const_cast<char*>(runner.c_str()), const_cast<char*>(parent.c_str()), nullptr};
  const int error    = posix_spawnp(&pid_, "python3", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    pid_ = 0;
    stop();
    throw Unavailable("needs_library", fmt::format("python3 ({})", std::strerror(error)));
  }
  processes().insert(pid_);
  const std::string text =
      script_.starts_with('/') ? text_of_script(script_) : std::string(python_source(script_));
  FATHOM_EXPECT(!text.empty(), script_ + " is no script of this build");
  send({{"do", "start"},
        {"script", script_.substr(script_.rfind('/') + 1)},
        {"text", text},
        {"backend", on_gpu_ ? "cuda" : "cpu"}});
  answer(kStartS);
}

void PythonProcess::stop() noexcept {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    // Not for ever: a process that the GPU's driver holds may not end.
    for (int i = 0; i < 200 && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) usleep(10'000);
    processes().erase(pid_);
  }
  pid_ = 0;
  if (flags_) munmap(flags_, sizeof(Flags));
  flags_ = nullptr;
  for (int* fd : {&socket_, &log_, &flags_fd_})
    if (*fd >= 0) close(std::exchange(*fd, -1));
  unread_.clear();
  sets_.clear();
}

void PythonProcess::fail(const std::string& what) {
  const std::string lines = last_lines();
  stop();
  throw SystemError(fmt::format("{}: {}{}{}", script_.substr(script_.rfind('/') + 1), what,
                                lines.empty() ? "" : "; last on stderr: ", lines));
}

void PythonProcess::time_out(double longest_s) {
  const std::string lines = last_lines();
  stop();
  throw TimedOut(fmt::format("{} gave no answer in {:.3g} s{}{}", script_.substr(script_.rfind('/') + 1),
                             longest_s, lines.empty() ? "" : "; last on stderr: ", lines));
}

std::string PythonProcess::last_lines() const {
  const off_t end = log_ >= 0 ? lseek(log_, 0, SEEK_END) : 0;
  std::string tail(400, '\0');
  const ssize_t n = pread(log_, tail.data(), tail.size(), std::max<off_t>(0, end - 400));
  tail.resize(static_cast<size_t>(std::max<ssize_t>(0, n)));
  while (tail.ends_with('\n')) tail.pop_back();
  std::replace(tail.begin(), tail.end(), '\n', ' ');
  return tail;
}

void PythonProcess::send(const nlohmann::json& question) {
  const std::string line = question.dump() + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno == EAGAIN ? "does not listen" : how_it_ended(pid_));
    sent += static_cast<size_t>(n);
  }
}

std::optional<nlohmann::json> PythonProcess::answer_within(double longest_s) {
  const double until = seconds_now() + longest_s;
  for (;;) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      const auto message = nlohmann::json::parse(unread_.substr(0, end));
      unread_.erase(0, end + 1);
      if (message.contains("error")) fail(message["error"].get<std::string>());
      if (message.contains("missing")) {
        stop();
        throw Unavailable(message["missing"].get<std::string>(), message.at("need").get<std::string>());
      }
      return message;
    }
    const double left = until - seconds_now();
    if (left <= 0) return std::nullopt;
    pollfd ready{socket_, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(std::ceil(left * 1e3))) <= 0) continue;
    char buffer[4096];
    const ssize_t n = recv(socket_, buffer, sizeof buffer, 0);
    if (n == 0 || (n < 0 && errno != EINTR)) fail(how_it_ended(pid_));
    if (n > 0) unread_.append(buffer, static_cast<size_t>(n));
  }
}

nlohmann::json PythonProcess::answer(double longest_s) {
  auto message = answer_within(longest_s);
  if (!message) time_out(longest_s);
  return *message;
}

void PythonProcess::prepare(const void* set, const Arena& arena, const PythonArguments& arguments) {
  if (pid_ == 0) start();
  samples_.clear();
  add_set(set, arena, arguments);
  run({set}, false);
}

void PythonProcess::add_set(const void* set, const Arena& arena, const PythonArguments& arguments) {
  forget(set);
  nlohmann::json list = nlohmann::json::array();
  try {
    for (const PythonArgument& argument : arguments) list.push_back(json_of(argument, arena));
  } catch (const SystemError& e) {
    throw Unavailable("needs_feature", fmt::format("GPU memory shared between processes: {}", e.what()));
  }
  send({{"do", "bind"}, {"set", id_of(set)}, {"arguments", list}});
  library_ = answer(kStartS).at("library").get<std::string>();
  sets_.insert(set);
}

void PythonProcess::forget(const void* set) noexcept {
  if (sets_.erase(set) == 0) return;
  try {
    send({{"do", "forget"}, {"set", id_of(set)}});
    answer(longest_s_);
  } catch (const std::exception&) {
    stop();  // it holds memory that is about to be released
  }
}

void PythonProcess::call(const void* set) {
  FATHOM_EXPECT(knows(set), "a Python process is called on memory that it was not given");
  if (gathering_)
    gathered_.push_back(set);
  else
    run({set}, false);
}

PythonProcess::Ran PythonProcess::run(const std::vector<const void*>& sets, bool held) {
  const uint32_t ticket = ++ticket_;
  if (!held) flags_->go = ticket;
  nlohmann::json ids = nlohmann::json::array();
  for (const void* set : sets) ids.push_back(id_of(set));
  send({{"do", "run"}, {"sets", ids}, {"ticket", ticket}});
  Ran ran;
  const double longest_s = longest_s_ + (held ? 0 : kStartS);
  if (held) {
    // Where it waits for the GPU, which waits for the flag, it would never answer.
    ran.waited         = !answer_within(std::min(kLongestHoldS, longest_s));
    const double begin = seconds_now();
    flags_->go         = ticket;
    pollfd ready{socket_, POLLIN, 0};
    while (flags_->done != ticket) {
      const double elapsed = seconds_now() - begin;
      if (elapsed > longest_s) time_out(longest_s);
      if (elapsed < kLongestSpinS) continue;
      // The answer follows the flag, or says what failed. Where no GPU raises the flag this thread sleeps
      // until then: it may need the CPU that it would spin on.
      if (poll(&ready, 1, on_gpu_ ? 0 : 100) > 0) break;
    }
    ran.seen_ns = (seconds_now() - begin) * 1e9;
  }
  if (!held || ran.waited) answer(longest_s);  // "enqueued"
  ran.ns = answer(longest_s).at("ns").get<double>();
  return ran;
}

PythonProcess::Timing PythonProcess::time(const std::function<void()>& calls, bool held) {
  gathered_.clear();
  gathering_ = true;
  try {
    calls();
  } catch (...) {
    gathering_ = false;
    throw;
  }
  gathering_ = false;
  if (!held) return {.ns = run(gathered_, false).ns};
  const Ran flags = run({}, true), ran = run(gathered_, true);
  if (flags.waited || ran.waited) return {.ns = ran.ns, .waited = true};
  samples_.push_back({std::ssize(gathered_), ran.ns, ran.seen_ns, flags.seen_ns - flags.ns});
  return {.ns = ran.ns};
}

std::optional<Caught> PythonProcess::check_clock(int64_t calls) const {
  std::vector<Sample> samples;
  std::copy_if(samples_.begin(), samples_.end(), std::back_inserter(samples),
               [&](const Sample& sample) { return sample.calls == calls; });
  if (samples.empty()) return std::nullopt;
  double flags_ns = samples[0].flags_ns;
  for (const Sample& sample : samples) flags_ns = std::min(flags_ns, sample.flags_ns);
  const auto allowed_ns = [](double ns) { return kShareAllowed * ns + kNsAllowed; };
  std::vector<double> reported, seen, beyond;
  for (const Sample& sample : samples) {
    reported.push_back(sample.ns);
    seen.push_back(sample.seen_ns - flags_ns);
    beyond.push_back(seen.back() - sample.ns - allowed_ns(sample.ns));
  }
  const double says = measure::median(reported), least = *std::min_element(seen.begin(), seen.end());
  const double most      = measure::median(seen) + flags_ns;
  const bool always_less = *std::min_element(beyond.begin(), beyond.end()) > 0;
  if (!always_less && says >= least - allowed_ns(least) && says <= most + allowed_ns(most))
    return std::nullopt;
  return Caught{
      Outcome::invalid, "parent_clock",
      fmt::format("the process reports {:.1f} us for a sample, median, that took from {:.1f} to {:.1f} "
                  "us by its parent's clock",
                  says * 1e-3, least * 1e-3, most * 1e-3)};
}

}  // namespace fathom::lab
