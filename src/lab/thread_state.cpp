#include "lab/thread_state.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cfenv>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fathom::lab {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kExceptionFlags = 0x3F;  // of MXCSR: set by ordinary arithmetic
uint32_t floating_point_mode() { return _mm_getcsr() & ~kExceptionFlags; }
void set_floating_point_mode(uint32_t mode) { _mm_setcsr(mode | (_mm_getcsr() & kExceptionFlags)); }
#else
uint32_t floating_point_mode() { return static_cast<uint32_t>(std::fegetround()); }
void set_floating_point_mode(uint32_t mode) { std::fesetround(static_cast<int>(mode)); }
#endif

}  // namespace

ThreadState ThreadState::of_this_thread() {
  ThreadState state;
  state.floating_point = floating_point_mode();
  sched_getaffinity(0, sizeof state.cpus, &state.cpus);
  state.nice = getpriority(PRIO_PROCESS, 0);  // on Linux: of the thread
  return state;
}

std::string ThreadState::undo_changes() const {
  const ThreadState now = of_this_thread();
  std::string changed;
  const auto add = [&changed](const std::string& what) {
    changed += (changed.empty() ? "" : " and ") + what;
  };
  if (now.floating_point != floating_point) {
    add(fmt::format("the floating-point mode ({:#x}, was {:#x}: rounding or subnormals)", now.floating_point,
                    floating_point));
    set_floating_point_mode(floating_point);
  }
  if (!CPU_EQUAL(&now.cpus, &cpus)) {
    add(fmt::format("the CPUs that it may run on ({}, was {})", CPU_COUNT(&now.cpus), CPU_COUNT(&cpus)));
    sched_setaffinity(0, sizeof cpus, &cpus);
  }
  if (now.nice != nice) {
    add(fmt::format("its priority (nice {}, was {})", now.nice, nice));
    setpriority(PRIO_PROCESS, 0, nice);  // refused without the privilege to raise it again
  }
  return changed;
}

ThreadStates::ThreadStates(ThreadPool& pool) : pool_(pool), before_(static_cast<size_t>(pool.threads())) {
  pool_.run([&](int worker) { before_[static_cast<size_t>(worker)] = ThreadState::of_this_thread(); });
}

std::optional<Caught> ThreadStates::undo_changes(const VariantInfo& variant) {
  std::vector<std::string> changed(before_.size());
  pool_.run([&](int worker) {
    const auto w = static_cast<size_t>(worker);
    changed[w]   = before_[w].undo_changes();
  });
  if (variant.own_process) return std::nullopt;
  for (const std::string& what : changed)
    if (!what.empty())
      return Caught{Outcome::invalid, "thread_state",
                    "the call left a thread of the process changed, for all variants: " + what};
  return std::nullopt;
}

}  // namespace fathom::lab
