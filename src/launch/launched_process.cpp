#include "launch/launched_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "core/exit_code.h"
#include "core/expect.h"

namespace fathom::launch {
namespace {

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

void LineStream::read_lines(const std::function<void(std::string_view)>& on_line) {
  char buffer[65536];
  const ssize_t n = read(from, buffer, sizeof buffer);
  if (n > 0) {
    pending.append(buffer, static_cast<size_t>(n));
    size_t begin = 0;
    for (size_t end; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1)
      on_line(std::string_view(pending).substr(begin, end - begin));
    pending.erase(0, begin);
    return;
  }
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (!pending.empty()) on_line(pending);
  pending.clear();
  close(from);
  from = -1;
}

void LaunchedProcess::signal(int number) const {
  if (pid > 0) kill(-pid, number);
}

bool LaunchedProcess::reap() {
  int ended = 0;
  if (pid <= 0 || waitpid(pid, &ended, WNOHANG) != pid) return false;
  pid    = 0;
  status = ended;
  return true;
}

void LaunchedProcess::drain(const std::function<void(int, std::string_view)>& on_line) {
  for (int s = 0; s < 2; ++s) {
    LineStream& stream = streams[s];
    if (stream.from < 0) continue;
    fcntl(stream.from, F_SETFL, O_NONBLOCK);
    for (pollfd ready{stream.from, POLLIN, 0}; stream.from >= 0 && poll(&ready, 1, 0) > 0;)
      stream.read_lines([&](std::string_view line) { on_line(s, line); });
  }
}

LaunchedProcess start_process(ProcessStart start) {
  const std::vector<char*> argv = pointers(start.arguments), envp = pointers(start.environment);
  const pid_t launcher = getpid();
  int out[2], err[2], in[2] = {-1, -1};
  FATHOM_SYSTEM(pipe2(out, O_CLOEXEC));
  FATHOM_SYSTEM(pipe2(err, O_CLOEXEC));
  if (start.with_input) FATHOM_SYSTEM(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in));
  const pid_t pid = FATHOM_SYSTEM(fork());
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != launcher) _exit(kExitCrash);  // it died before prctl
    dup2(start.with_input ? in[1] : open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    if (!start.directory.empty() && chdir(start.directory.c_str()) != 0) _exit(kExitCrash);
    execvpe(start.path.c_str(), argv.data(), envp.data());
    _exit(127);  // as a shell says that there is no such program
  }
  setpgid(pid, pid);  // whichever comes first
  close(out[1]);
  close(err[1]);
  if (start.with_input) close(in[1]);
  LaunchedProcess started;
  started.pid             = pid;
  started.input           = in[0];
  started.streams[0].from = out[0];
  started.streams[1].from = err[0];
  return started;
}

bool write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(to, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace fathom::launch
