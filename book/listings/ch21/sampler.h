// A sampling profiler: a timer of the process's CPU time interrupts it, and the signal's handler notes where
// the program was, and who had called: once by the compiler's unwinding tables, once by frame pointers.
#pragma once

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include <cstdint>
#include <string>
#include <vector>

struct Stack {
  void* at[12];  // at[0] is the instruction that comes next, at[1] a return address in its caller, and so on
  int depth;
};

struct Sample {
  Stack by_tables, by_frames;
};

inline constexpr int kMost = 1 << 14;
inline Sample ring[kMost];
inline volatile int taken = 0;
inline uintptr_t stack_end;

inline void take_sample(int, siginfo_t*, void* context) {
  if (taken == kMost) return;
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Sample& s             = ring[taken];

  void* all[14];  // the first two are this handler and its return to the kernel
  s.by_tables.depth = backtrace(all, 14) - 2;
  for (int i = 0; i < s.by_tables.depth; ++i) s.by_tables.at[i] = all[i + 2];

  s.by_frames = {{reinterpret_cast<void*>(registers[REG_RIP])}, 1};
  auto low    = static_cast<uintptr_t>(registers[REG_RSP]);
  for (auto frame = static_cast<uintptr_t>(registers[REG_RBP]); s.by_frames.depth < 12;) {
    if (frame < low || frame >= stack_end) break;
    const auto* words                   = reinterpret_cast<uintptr_t*>(frame);
    s.by_frames.at[s.by_frames.depth++] = reinterpret_cast<void*>(words[1]);
    low = frame + 1, frame = words[0];
  }
  taken = taken + 1;
}

inline void start_sampling() {
  taken     = 0;
  stack_end = reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) + 4096;
  void* unused[1];
  backtrace(unused, 1);  // the first call allocates, which a handler may not
  struct sigaction action {};
  action.sa_sigaction = take_sample;
  action.sa_flags     = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPROF, &action, nullptr);
  const itimerval often{{0, 1000}, {0, 1000}};  // the kernel makes a tick of it
  setitimer(ITIMER_PROF, &often, nullptr);
}

inline std::vector<Sample> stop_sampling() {
  const itimerval never{};
  setitimer(ITIMER_PROF, &never, nullptr);
  return {ring, ring + taken};
}

// A program is linked with -rdynamic, so that its functions have names.
inline std::string function_at(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) && info.dli_sname ? info.dli_sname : "?";
}
