#include "profile/cpu_profiler.h"

#include <errno.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>

#include "core/expect.h"
#include "measure/clock.h"
#include "profile/profiling_signal.h"

namespace fathom::profile {
namespace {

using measure::now_ns;

constexpr int kDeepest = 64;
constexpr int kSlots   = 1024;  // more than 64 busy threads fill between two visits
constexpr std::chrono::milliseconds kVisit{100};

// A sample on its way from the interrupted thread to the profiler's.
struct StackSlot {
  enum : int { empty, being_written, full };
  std::atomic<int> state = empty;
  int thread = 0, depth = 0;
  uintptr_t stack[kDeepest];
};

// What the signal handler writes to. It may do only what is async-signal-safe: no allocation, no lock.
struct StackSlots {
  StackSlot slots[kSlots];
  std::atomic<uint32_t> next      = 0;
  std::atomic<int64_t> dropped    = 0;
  std::atomic<int64_t> handler_ns = 0;
};
std::atomic<StackSlots*> stack_slots = nullptr;
std::atomic<int> handlers_inside     = 0;

// The handler's own frames come before the interrupted one.
struct StackWalk {
  StackSlot& slot;
  uintptr_t interrupted;
  bool found = false;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* to) {
  auto& walk              = *static_cast<StackWalk*>(to);
  int is_exact            = 0;  // else it is a return address, which may belong to the next function
  const uintptr_t address = _Unwind_GetIPInfo(context, &is_exact);
  if (address == 0) return _URC_END_OF_STACK;
  walk.found |= address == walk.interrupted;
  if (!walk.found) return _URC_NO_REASON;
  walk.slot.stack[walk.slot.depth++] = is_exact ? address : address - 1;
  return walk.slot.depth == kDeepest ? _URC_END_OF_STACK : _URC_NO_REASON;
}

// Since glibc 2.35 and GCC 12 the unwinder finds its tables without a lock (_dl_find_object), so that a
// thread may be interrupted anywhere, also while a library is being loaded.
void note_stack(StackSlots& all, uintptr_t interrupted) {
  StackSlot& slot = all.slots[all.next.fetch_add(1, std::memory_order_relaxed) % kSlots];
  int expected    = StackSlot::empty;
  if (!slot.state.compare_exchange_strong(expected, StackSlot::being_written)) {
    all.dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  slot.thread = static_cast<int>(syscall(SYS_gettid));
  slot.depth  = 0;
  StackWalk walk{slot, interrupted};
  _Unwind_Backtrace(add_frame, &walk);
  if (slot.depth == 0) slot.stack[slot.depth++] = interrupted;  // code without tables
  slot.state.store(StackSlot::full, std::memory_order_release);
}

void on_profiling_signal(int, siginfo_t*, void* context) {
  const int saved = errno;
  handlers_inside.fetch_add(1);
  if (StackSlots* all = stack_slots.load()) {
    const int64_t began = now_ns(measure::Clock::thread_cpu);  // other threads may run meanwhile
    note_stack(*all, interrupted_at(context));
    all->handler_ns.fetch_add(now_ns(measure::Clock::thread_cpu) - began, std::memory_order_relaxed);
  }
  handlers_inside.fetch_sub(1);
  errno = saved;
}

_Unwind_Reason_Code stop_walking(_Unwind_Context*, void*) { return _URC_END_OF_STACK; }

}  // namespace

struct CpuProfiler::Window {
  Id id;
  Done done;
  std::chrono::system_clock::time_point began;
  Clock::time_point started, ends;
  Usage before;
  int64_t samples                                                                              = 0;
  std::map<std::pair<std::string, std::vector<uintptr_t>>, std::pair<int64_t, int64_t>> counts = {};
};

CpuProfiler::CpuProfiler() {
  StackSlots* none = nullptr;
  auto slots       = std::make_unique<StackSlots>();
  FATHOM_EXPECT(stack_slots.compare_exchange_strong(none, slots.get()), "one profiler at a time");
  (void)slots.release();                           // this object's, until the destructor
  (void)_Unwind_Backtrace(stop_walking, nullptr);  // what it does at its first call is not for a handler
  (void)handle_profiling_signal(on_profiling_signal);
  thread_ = std::thread([this] { work(); });
}

void CpuProfiler::end() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

CpuProfiler::~CpuProfiler() {
  end();
  // The handler stays: a signal that is under way would end the process.
  const std::unique_ptr<StackSlots> slots(stack_slots.exchange(nullptr));
  while (handlers_inside.load() != 0) std::this_thread::yield();
}

std::optional<CpuProfiler::Id> CpuProfiler::profile(std::chrono::nanoseconds duration, Done done) {
  Id id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return std::nullopt;
    id = next_id_++;
    new_windows_.push_back({.id      = id,
                            .done    = std::move(done),
                            .began   = std::chrono::system_clock::now(),
                            .started = Clock::now(),
                            .ends    = Clock::now() + duration,
                            .before  = usage()});
  }
  changed_.notify_all();
  return id;
}

void CpuProfiler::cancel(Id id) {
  std::list<Window> cancelled;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  for (std::list<Window>* windows : {&new_windows_, &windows_})
    for (auto window = windows->begin(); window != windows->end(); ++window)
      if (window->id == id) return cancelled.splice(cancelled.end(), *windows, window);
}

CpuProfiler::Usage CpuProfiler::usage() const {
  const StackSlots& slots = *stack_slots.load();
  return {.cpu_s      = 1e-9 * static_cast<double>(now_ns(measure::Clock::process_cpu)),
          .overhead_s = 1e-9 * static_cast<double>(slots.handler_ns.load()),
          .dropped    = slots.dropped.load()};
}

void CpuProfiler::work() {
  pthread_setname_np(pthread_self(), "fathom-profiler");
  std::unique_lock lock(mutex_);
  while (!ending_ || !windows_.empty() || !new_windows_.empty()) {
    const auto wanted = [&] { return ending_ || !new_windows_.empty(); };
    if (windows_.empty())
      changed_.wait(lock, wanted);
    else
      changed_.wait_for(lock, kVisit, wanted);
    read_samples();  // those so far are not of the new ones
    windows_.splice(windows_.end(), new_windows_);
    arm();
    limit_overhead();
    std::list<Window> over;
    for (auto window = windows_.begin(); window != windows_.end();) {
      const auto next = std::next(window);
      if (ending_ || Clock::now() >= window->ends) over.splice(over.end(), windows_, window);
      window = next;
    }
    lock.unlock();
    for (Window& window : over) window.done(profile_of(window));
    over.clear();
    lock.lock();
    if (new_windows_.empty()) arm();
  }
}

// The timer runs while somebody wants samples.
void CpuProfiler::arm() {
  const bool wanted = !windows_.empty();
  if (wanted == armed_) return;
  armed_ = wanted;
  if (wanted) {
    drop_samples();  // taken while the last profile was handed over
    period_  = kPeriod;
    checked_ = usage();
  }
  set_profiling_timer(wanted ? period_ : std::chrono::microseconds(0));
}

void CpuProfiler::drop_samples() {
  for (StackSlot& slot : stack_slots.load()->slots)
    if (slot.state.load(std::memory_order_acquire) == StackSlot::full)
      slot.state.store(StackSlot::empty, std::memory_order_release);
}

void CpuProfiler::read_samples() {
  if (windows_.empty()) return;
  const int64_t period_ns = std::chrono::nanoseconds(period_).count();
  for (StackSlot& slot : stack_slots.load()->slots) {
    if (slot.state.load(std::memory_order_acquire) != StackSlot::full) continue;
    const std::pair key(thread_name(slot.thread),
                        std::vector<uintptr_t>(slot.stack, slot.stack + slot.depth));
    slot.state.store(StackSlot::empty, std::memory_order_release);
    for (Window& window : windows_) {
      auto& [samples, cpu_ns] = window.counts[key];
      ++samples;
      ++window.samples;
      cpu_ns += period_ns;
    }
  }
}

void CpuProfiler::limit_overhead() {
  constexpr double kEnoughCpuS = 0.5;  // to judge by
  constexpr std::chrono::milliseconds kLongestPeriod{500};
  const Usage now    = usage();
  const double cpu_s = now.cpu_s - checked_.cpu_s;
  if (!armed_ || cpu_s < kEnoughCpuS) return;
  const double share = (now.overhead_s - checked_.overhead_s) / cpu_s;
  checked_           = now;
  const auto before  = period_;
  if (share > kLargestOverhead && period_ < kLongestPeriod) period_ *= 2;
  if (share < kLargestOverhead / 4 && period_ > kPeriod) period_ /= 2;
  if (period_ != before) set_profiling_timer(period_);
}

StackProfile CpuProfiler::profile_of(Window& window) const {
  const Usage after = usage();
  StackProfile profile{.began      = window.began,
                       .lasted     = Clock::now() - window.started,
                       .period     = period_,
                       .stacks     = {},
                       .samples    = window.samples,
                       .dropped    = after.dropped - window.before.dropped,
                       .cpu_s      = after.cpu_s - window.before.cpu_s,
                       .overhead_s = after.overhead_s - window.before.overhead_s};
  for (const auto& [key, counts] : window.counts)
    profile.stacks.push_back(
        {.thread = key.first, .stack = key.second, .samples = counts.first, .cpu_ns = counts.second});
  std::stable_sort(profile.stacks.begin(), profile.stacks.end(),
                   [](const StackCount& a, const StackCount& b) { return a.cpu_ns > b.cpu_ns; });
  return profile;
}

// A thread keeps the name that it had at its first sample: names are given at the start.
const std::string& CpuProfiler::thread_name(int id) {
  auto [found, added] = thread_names_.try_emplace(id);
  if (added) {
    std::ifstream file(fmt::format("/proc/self/task/{}/comm", id));
    if (!std::getline(file, found->second)) found->second = "ended thread";
    if (thread_names_.size() > 4096) {  // of a process that starts threads for ever
      std::string name = std::move(found->second);
      thread_names_.clear();
      found = thread_names_.emplace(id, std::move(name)).first;
    }
  }
  return found->second;
}

}  // namespace fathom::profile
