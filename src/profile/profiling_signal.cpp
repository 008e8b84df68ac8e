#include "profile/profiling_signal.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/time.h>
#include <ucontext.h>

#include <cstring>

#include "core/expect.h"

namespace fathom::profile {

struct sigaction handle_profiling_signal(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {
  }, before{};
  action.sa_sigaction = handler;
  action.sa_flags     = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGPROF, &action, &before) != 0)
    throw SystemError(fmt::format("sigaction(SIGPROF): {}", std::strerror(errno)));
  return before;
}

void set_profiling_timer(std::chrono::microseconds period) {
  const timeval every{.tv_sec = 0, .tv_usec = period.count()};
  const itimerval timer{.it_interval = every, .it_value = every};
  if (setitimer(ITIMER_PROF, &timer, nullptr) != 0)
    throw SystemError(fmt::format("setitimer(ITIMER_PROF): {}", std::strerror(errno)));
}

uintptr_t interrupted_at(const void* context) {
  const auto* user = static_cast<const ucontext_t*>(context);
#if defined(__x86_64__)
  return static_cast<uintptr_t>(user->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<uintptr_t>(user->uc_mcontext.pc);
#else
  return 0;
#endif
}

}  // namespace fathom::profile
