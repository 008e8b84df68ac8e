#include "lab/candidate_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

extern char** environ;

namespace fathom::lab {
namespace {

constexpr int kLongestS   = 120;
constexpr int kLinesShown = 40;

std::string first_lines(const std::string& file) {
  std::ifstream in(file);
  std::string text;
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines)
    if (lines < kLinesShown) text += line + "\n";
  if (lines > kLinesShown) text += fmt::format("({} lines more)\n", lines - kLinesShown);
  return text;
}

// Its exit status, or -1 where it was killed for taking too long.
Result<int> run_compiler(const std::vector<std::string>& command, const std::string& log,
                         bool (*cancelled)()) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;  // a group of its own: the compiler starts others
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid       = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return Error{fmt::format("could not start {}, which compiles candidates ($CXX names another): {}",
                             command[0], std::strerror(error))};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kLongestS);
  for (int status = 0;;) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (ended < 0 && errno != EINTR) return Error{fmt::format("waitpid: {}", std::strerror(errno))};
    const bool stop = cancelled && cancelled();
    if (stop || std::chrono::steady_clock::now() > deadline) {
      kill(-pid, SIGKILL);
      waitpid(pid, &status, 0);
      if (stop) return Error{"interrupted"};
      return -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

Status compile_candidate(const std::string& source, const std::string& root, const std::string& folder,
                         const std::string& library, bool (*cancelled)()) {
  const char* compiler = std::getenv("CXX");  // may be "ccache g++"
  std::vector<std::string> command;
  std::istringstream words(fmt::format("{} -std=c++20 -shared -fPIC {}",
                                       compiler && *compiler ? compiler : "c++", FATHOM_VARIANT_FLAGS));
  for (std::string word; words >> word;) command.push_back(word);
  command.insert(command.end(), {"-I" + root + "/src", "-I" + root, "-I" + folder, "-o", library, source});
  const std::string log = library + ".log";
  auto status           = run_compiler(command, log, cancelled);
  if (!status) return status.error();
  if (*status == 0) return Ok{};
  if (*status < 0) return Error{fmt::format("{} was not compiled in {} s", source, kLongestS)};
  return Error{fmt::format("{} does not compile:\n{}", source, first_lines(log))};
}

CandidateLaunch load_candidate(const std::string& library, const std::string& problem) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    throw std::runtime_error(fmt::format(
        "the candidate cannot be loaded; it may call only what headers define, and ThreadPool: {}",
        dlerror()));
  const auto name   = reinterpret_cast<const char* (*)()>(dlsym(handle, "fathom_candidate_problem"));
  const auto launch = reinterpret_cast<CandidateLaunch>(dlsym(handle, "fathom_candidate_launch"));
  if (!name || !launch) throw std::runtime_error("the candidate's file has no FATHOM_CANDIDATE(function)");
  if (name() != problem)
    throw std::runtime_error(
        fmt::format("the candidate is for another experiment: its problem is {}, not {}", name(), problem));
  return launch;
}

}  // namespace fathom::lab
