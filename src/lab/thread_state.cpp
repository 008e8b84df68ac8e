#include "lab/thread_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cfenv>
#include <cstdlib>
#include <functional>
#include <set>
#include <string_view>

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

// Intel's OpenMP marks its presence with a variable of its own.
bool is_marker(std::string_view variable) { return variable.starts_with("__KMP_REGISTERED_LIB"); }

// "NAME=value" of every variable, sorted.
std::vector<std::string> environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; entry && *entry; ++entry)
    if (!is_marker(*entry)) variables.emplace_back(*entry);
  std::sort(variables.begin(), variables.end());
  return variables;
}

// Of a set of variables, without a copy: it is asked after each sample.
size_t environment_hash() {
  size_t sum = 0;
  for (char** entry = environ; entry && *entry; ++entry)
    if (!is_marker(*entry)) sum += std::hash<std::string_view>()(*entry);
  return sum;
}

struct Environment {
  std::vector<std::string> variables = environment();
  size_t hash                        = environment_hash();
};

// As it was before the first call of this process.
const Environment& first_environment() {
  static const Environment first;
  return first;
}

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

// Like ThreadState::undo_changes().
std::string undo_environment() {
  if (environment_hash() == first_environment().hash) return "";
  const std::vector<std::string>& before = first_environment().variables;
  const std::vector<std::string> now     = environment();
  std::set<std::string> changed;
  const auto lacking = [&](const std::vector<std::string>& from, const std::vector<std::string>& in,
                           auto&& f) {
    for (const std::string& variable : from)
      if (!std::binary_search(in.begin(), in.end(), variable)) {
        changed.insert(name_of(variable));
        f(variable);
      }
  };
  lacking(now, before, [](const std::string& variable) { unsetenv(name_of(variable).c_str()); });
  lacking(before, now, [](const std::string& variable) {
    setenv(name_of(variable).c_str(), variable.c_str() + std::min(variable.find('=') + 1, variable.size()),
           1);
  });
  return fmt::format("{}", fmt::join(changed, ", "));
}

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
  (void)first_environment();
  pool_.run([&](int worker) { before_[static_cast<size_t>(worker)] = ThreadState::of_this_thread(); });
}

std::optional<Caught> ThreadStates::after_prepare(const VariantInfo& variant) {
  (void)undo_environment();
  return undo_changes(variant);
}

std::optional<Caught> ThreadStates::undo_changes(const VariantInfo& variant) {
  std::vector<std::string> changed(before_.size());
  pool_.run([&](int worker) {
    const auto w = static_cast<size_t>(worker);
    changed[w]   = before_[w].undo_changes();
  });
  const std::string variables = undo_environment();
  if (variant.own_process) return std::nullopt;
  if (!variables.empty())
    return Caught{Outcome::invalid, "thread_state",
                  "the call left the environment of the process changed, for all variants: " + variables};
  for (const std::string& what : changed)
    if (!what.empty())
      return Caught{Outcome::invalid, "thread_state",
                    "the call left a thread of the process changed, for all variants: " + what};
  return std::nullopt;
}

}  // namespace fathom::lab
