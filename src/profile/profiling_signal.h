// SIGPROF by a timer of the process's CPU time: the kernel interrupts a thread that runs.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>

namespace fathom::profile {

// Returns the action that was there before. Throws SystemError.
struct sigaction handle_profiling_signal(void (*handler)(int, siginfo_t*, void*));

// A signal after each `period` of CPU time of all threads, rounded up to the kernel's tick; 0: none. Throws
// SystemError.
void set_profiling_timer(std::chrono::microseconds period);

// Of a handler's third argument: the address of the instruction that comes next. Async-signal-safe.
uintptr_t interrupted_at(const void* context);

}  // namespace fathom::profile
