#include "machine/perf_counters.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "machine/isolation.h"
#include "machine/topology.h"

namespace fathom::machine {
namespace {

constexpr int64_t kLoopSteps           = 1'000'000;
constexpr int64_t kInstructionsPerStep = 2;
constexpr double kTolerance            = 0.01;

// Two instructions a step, in assembly so that the compiler cannot change their number.
void known_loop() {
  int64_t steps = kLoopSteps;
#if defined(__x86_64__)
  asm volatile("1: dec %0\n jnz 1b" : "+r"(steps) : : "cc");
#elif defined(__aarch64__)
  asm volatile("1: subs %0, %0, #1\n b.ne 1b" : "+r"(steps) : : "cc");
#else
#error "known_loop() needs two instructions a step for this processor"
#endif
}

class Counter {  // of the calling thread, in user mode, started disabled
 public:
  Counter(uint32_t type, uint64_t config) {
    perf_event_attr event;
    std::memset(&event, 0, sizeof event);
    event.size           = sizeof event;
    event.type           = type;
    event.config         = config;
    event.disabled       = 1;
    event.exclude_kernel = 1;
    event.exclude_hv     = 1;
    file_  = static_cast<int>(syscall(SYS_perf_event_open, &event, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
    error_ = file_ < 0 ? errno : 0;
  }
  ~Counter() {
    if (file_ >= 0) close(file_);
  }
  Counter(const Counter&)            = delete;
  Counter& operator=(const Counter&) = delete;

  int error() const { return error_; }
  void start() { ioctl(file_, PERF_EVENT_IOC_ENABLE, 0); }
  std::optional<uint64_t> stop() {
    ioctl(file_, PERF_EVENT_IOC_DISABLE, 0);
    uint64_t count = 0;
    if (read(file_, &count, sizeof count) != static_cast<ssize_t>(sizeof count)) return std::nullopt;
    return count;
  }

 private:
  int file_ = -1, error_ = 0;
};

std::string refusal(const char* event, int error) {
  const std::string what = fmt::format("perf_event_open({}): {}", event, std::strerror(error));
  if (error == EACCES || error == EPERM)
    return fmt::format("{}; kernel.perf_event_paranoid is {}: lower it to 2 or run with CAP_PERFMON", what,
                       read_text("/proc/sys/kernel/perf_event_paranoid").value_or("unknown"));
  if (error == ENOENT && isolation().virtual_machine)
    return fmt::format("{}: the hypervisor ({}) shows no performance counters", what, isolation().hypervisor);
  return what;
}

}  // namespace

std::optional<std::string> missing_hardware_counters() {
  Counter instructions(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS);
  if (instructions.error()) return refusal("instructions", instructions.error());
  instructions.start();
  known_loop();
  const std::optional<uint64_t> counted = instructions.stop();
  if (!counted) return "the instruction counter opens but cannot be read";
  constexpr double kExpected = static_cast<double>(kLoopSteps * kInstructionsPerStep);
  if (std::abs(static_cast<double>(*counted) / kExpected - 1) <= kTolerance) return std::nullopt;
  return fmt::format("the instruction counter opens but is wrong: it counted {} for a loop of {:.0f}",
                     *counted, kExpected);
}

std::optional<std::string> missing_software_counters() {
  Counter clock(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK);
  if (clock.error()) return refusal("task-clock", clock.error());
  clock.start();
  known_loop();
  const std::optional<uint64_t> nanoseconds = clock.stop();
  if (nanoseconds && *nanoseconds > 0) return std::nullopt;
  return "the task clock opens but does not advance";
}

}  // namespace fathom::machine
