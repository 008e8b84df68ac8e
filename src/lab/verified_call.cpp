#include "lab/verified_call.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <thread>

#include "lab/python_process.h"
#include "measure/clock.h"

namespace fathom::lab {
namespace {

using measure::now_ns;

int thread_count() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // Field 2, the name, may hold spaces: count from its closing parenthesis. num_threads is field 20.
  size_t at = text.rfind(')');
  for (int field = 2; field < 20 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 1);
}

// Running, or ended and not waited for; the harness's Python processes do not count.
bool has_child_process() {
  siginfo_t info{};
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return false;
  const std::set<pid_t>& ours = PythonProcess::running();
  if (ours.empty()) return true;
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), closedir);
  while (const dirent* task = tasks ? readdir(tasks.get()) : nullptr) {
    std::ifstream children(fmt::format("/proc/self/task/{}/children", task->d_name));
    for (pid_t child; children >> child;)
      if (ours.count(child) == 0) return true;
  }
  return false;
}

// CPU time of the child processes that were waited for.
int64_t children_cpu_ns() {
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  const auto ns = [](const timeval& t) { return (int64_t{t.tv_sec} * 1'000'000 + t.tv_usec) * 1000; };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

// Of the threads other than this one, those of which is(state, flags) holds; flags are the kernel's PF_*.
template <class Is>
int count_other_threads(const Is& is) {
  int count = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), closedir);
  const pid_t self = gettid();
  while (const dirent* task = tasks ? readdir(tasks.get()) : nullptr) {
    const int id = std::atoi(task->d_name);
    if (id == 0 || id == self) continue;
    char path[64], text[512];
    std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;  // it ended meanwhile
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[std::max<ssize_t>(n, 0)] = 0;
    const char* name_end          = std::strrchr(text, ')');  // the name may hold spaces and parentheses
    char state;
    unsigned flags;
    if (name_end && std::sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2)
      count += is(state, flags);
  }
  return count;
}

// By state, not by CPU time: the kernel updates the CPU time of a running thread only at ticks, so it would
// appear milliseconds late, in another variant's call.
bool another_thread_runs() {
  return count_other_threads([](char state, unsigned) { return state == 'R'; }) > 0;
}

// Linux lists a thread for a moment after it was joined, longer where the machine is busy. From before the
// join returns it is marked as exiting, and does nothing more for its program.
int live_threads() {
  constexpr unsigned kExiting = 4;  // the kernel's PF_EXITING
  return 1 + count_other_threads([](char, unsigned flags) { return !(flags & kExiting); });
}

using Ranks = std::span<const Problem* const>;

Checker look(const Problem& problem, const Checker::Options& options, Ranks ranks = {}) {
  Checker checker(options);
  problem.check(checker, ranks);
  return checker;
}

bool all_ok(const std::vector<Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(), [](const Finding& f) { return f.ok(); });
}

// Whether the outputs are right for earlier inputs. Evaluates the reference over inputs refilled from earlier
// seeds; the outputs stay as the call left them.
bool answers_earlier_inputs(Problem& problem, const SeedHistory& seeds, const Checker::Options& options) {
  std::vector<uint64_t> suspects = {seeds.prepared};
  constexpr size_t kSome         = 6;
  for (size_t i = 0; i < std::min(kSome, seeds.earlier.size()); ++i) {
    suspects.push_back(seeds.earlier[i]);
    suspects.push_back(seeds.earlier[seeds.earlier.size() - 1 - i]);
  }
  bool found = false;
  for (const uint64_t seed : std::set<uint64_t>(suspects.begin(), suspects.end())) {
    if (seed == seeds.present) continue;
    problem.arena().fill(seed);
    found = all_ok(look(problem, options).findings());
    if (found) break;
  }
  problem.arena().fill(seeds.present);
  return found;
}

Caught judge_wrong_output(Problem& problem, const SeedHistory& seeds, const Checker::Options& options,
                          const Finding& finding, bool timed, bool alone) {
  const std::string what =
      finding.wrong > 0 ? fmt::format("{} of {} elements are wrong: {}", finding.wrong, finding.elements,
                                      finding.first_wrong)
                        : fmt::format("errors of {} are too large on the whole: rms {:.3g}, allowed {:.3g}",
                                      finding.output, finding.rms_error, 0.25 * finding.rms_tolerance);
  if (finding.poisoned > 0) return {Outcome::wrong, "poison", what};
  // Refilling would race with other ranks, which read these inputs.
  if (alone && answers_earlier_inputs(problem, seeds, options))
    return {Outcome::wrong, "fresh_inputs", "the output answers inputs of an earlier call: " + what};
  if (finding.nans > 0) return {Outcome::wrong, "nan", what};
  if (timed) return {Outcome::wrong, "timed_check", "right when checked, wrong when timed: " + what};
  // Small errors everywhere mean lower precision; large ones mean another answer.
  const bool close = finding.max_error > 0 && finding.max_error < 0.05 * finding.rms_value;
  return {Outcome::wrong, close ? "tolerance" : "reference",
          close ? fmt::format("{} (largest error {:.3g}, tolerance {:.3g})", what, finding.max_error,
                              finding.tolerance)
                : what};
}

// NVIDIA's compute-sanitizer works on threads of its own inside this process. Read before any variant runs.
const bool kUnderComputeSanitizer = std::getenv("NV_SANITIZER_INJECTION_TRANSPORT_TYPE") != nullptr;

}  // namespace

ThreadAudit ThreadAudit::now() {
  ThreadAudit audit;
  audit.threads       = thread_count();
  audit.child_process = has_child_process();
  audit.others_cpu_ns =
      now_ns(measure::Clock::process_cpu) - now_ns(measure::Clock::thread_cpu) + children_cpu_ns();
  audit.wall_ns = now_ns(measure::Clock::wall);
  return audit;
}

std::optional<Caught> audit_threads(const VariantInfo& variant, const ThreadAudit& before,
                                    const ThreadAudit& after) {
  if (kUnderComputeSanitizer) return std::nullopt;
  // A library starts its pool at its first call and keeps it: Kind::library declares that.
  if (variant.kind != Kind::library && after.threads > before.threads && live_threads() > before.threads)
    return Caught{
        Outcome::invalid, "thread_audit",
        fmt::format("{} thread(s) were still there after the call", after.threads - before.threads)};
  if (auto caught = audit_processes(variant, before, after)) return caught;
  const int64_t others = after.others_cpu_ns - before.others_cpu_ns;
  // Reading two clocks is not atomic: allow for a preemption between them.
  const int64_t allowed = std::max<int64_t>(500'000, (after.wall_ns - before.wall_ns) / 20);
  if (variant.threads == 1 && others > allowed)
    return Caught{
        Outcome::invalid, "thread_audit",
        fmt::format("declared 1 thread, but others used {:.2f} ms of CPU during the call", others / 1e6)};
  return std::nullopt;
}

std::optional<Caught> audit_processes(const VariantInfo& variant, const ThreadAudit& before,
                                      const ThreadAudit& after) {
  if (variant.kind == Kind::library || before.child_process || !after.child_process) return std::nullopt;
  return Caught{Outcome::invalid, "thread_audit",
                "a process that it started was still there afterwards: what that does is in nobody's time"};
}

bool others_helped(const VariantInfo& variant, const ThreadAudit& before, const ThreadAudit& after) {
  if (kUnderComputeSanitizer) return false;
  const int64_t others = after.others_cpu_ns - before.others_cpu_ns;
  return variant.threads == 1 && others > std::max<int64_t>(100'000, (after.wall_ns - before.wall_ns) / 10);
}

bool doubtful_too_often(int doubtful, int64_t samples) {
  return doubtful > std::max<int64_t>(2, samples / 20);
}

void wait_until_quiet() {
  constexpr int64_t kLongest = 300'000'000;
  const int64_t give_up      = now_ns(measure::Clock::wall) + kLongest;
  while (another_thread_runs() && now_ns(measure::Clock::wall) < give_up) usleep(200);
}

int64_t Inspection::elements() const {
  int64_t sum = 0;
  for (const Finding& finding : findings) sum += finding.elements;
  return sum;
}

Inspection inspect(Problem& problem, const SeedHistory& seeds, uint64_t checksum,
                   const Checker::Options& given, bool timed, Ranks ranks) {
  Arena& arena = problem.arena();
  if (const auto broken = arena.broken_guard()) {
    arena.repair_guards();
    return {Caught{Outcome::wrong, "guard_band", *broken}, {}};
  }
  if (arena.input_checksum() != checksum) {
    arena.fill(seeds.present);
    return {Caught{Outcome::wrong, "input_checksum", "the call changed its inputs"}, {}};
  }
  Checker::Options options = given;
  options.is_poison        = [&problem](const void* element, int64_t bytes) {
    return problem.checked_arena().is_poison(element, bytes);
  };
  Inspection result{std::nullopt, look(problem, options, ranks).findings()};
  for (const Finding& finding : result.findings)
    if (!finding.ok()) {
      result.caught = judge_wrong_output(problem, seeds, options, finding, timed, ranks.empty());
      break;
    }
  return result;
}

}  // namespace fathom::lab
