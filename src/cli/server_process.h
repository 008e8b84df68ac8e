// What processes that serve until a signal have in common.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "core/expect.h"

namespace fathom::cli {

// Blocks SIGINT and SIGTERM so that one thread can wait for them. Construct it before any other thread
// starts: threads inherit the signal mask.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    FATHOM_EXPECT(pthread_sigmask(SIG_BLOCK, &set_, &before_) == 0, "signals can be blocked");
  }
  ~StopSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  StopSignals(const StopSignals&)            = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void wait() const {
    int signal = 0;
    sigwait(&set_, &signal);
  }
  bool arrived_within(std::chrono::nanoseconds time) const {
    const timespec limit{.tv_sec = time.count() / 1'000'000'000, .tv_nsec = time.count() % 1'000'000'000};
    return sigtimedwait(&set_, nullptr, &limit) > 0;
  }
  bool arrived() const { return arrived_within(std::chrono::nanoseconds(0)); }

 private:
  sigset_t set_, before_;
};

// As PID 1 of a container we are the parent of orphans, of `docker exec` for instance. Nobody else waits for
// them, so the kernel is told not to keep what is left of them.
inline void leave_no_zombies() {
  if (getpid() == 1) signal(SIGCHLD, SIG_IGN);
}

}  // namespace fathom::cli
