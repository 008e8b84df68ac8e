#include "lab/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/expect.h"
#include "lab/phase_board.h"
#include "lab/registry.h"
#include "lab/runner.h"
#include "lab/source_hash.h"
#include "lab/summary.h"
#include "machine/ceilings.h"
#include "machine/identity.h"
#include "measure/latin_square.h"

extern char** environ;

namespace fathom::lab {
namespace {

using nlohmann::json;
using Steady = std::chrono::steady_clock;

constexpr int kEventsFd = 3, kBoardFd = 4;
constexpr double kPhaseLimitS = 60;

double seconds_since(Steady::time_point start) {
  return std::chrono::duration<double>(Steady::now() - start).count();
}

// What a child is told, as its argument.
json to_json(const ExperimentInfo& experiment, const MeasureOptions& options) {
  json axes = json::array();
  for (const Axis& axis : options.run.axes) {
    json values = json::array();
    for (const Value& value : axis.values) std::visit([&](const auto& v) { values.push_back(v); }, value);
    axes.push_back({{"name", axis.name}, {"values", values}});
  }
  json failed = json::array();
  for (const VariantRecord& record : options.failed)
    failed.push_back(
        {{"id", record.id}, {"status", static_cast<int>(record.status)}, {"detail", record.detail}});
  const RunOptions& run = options.run;
  return {{"experiment", experiment.id},
          {"parent", getpid()},
          {"variants", options.variants},
          {"failed", failed},
          {"done", options.done},
          {"axes", axes},
          {"quick", run.quick},
          {"cold_start", run.cold_start},
          {"check_only", run.check_only},
          {"iterations", run.iterations},
          {"warmup", run.warmup},
          {"repeat", run.repeat},
          {"seed", run.seed},
          {"aa", run.aa},
          {"profile_set", run.profile_set},
          {"folder", run.folder}};
}

Value value_from(const json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  return value.get<std::string>();
}

MeasureOptions options_from(const json& told) {
  MeasureOptions options;
  options.variants = told.at("variants").get<std::vector<std::string>>();
  options.done     = told.at("done").get<std::vector<std::string>>();
  for (const json& record : told.at("failed")) {
    VariantRecord failed;
    failed.id     = record.at("id");
    failed.status = static_cast<Outcome>(record.at("status").get<int>());
    failed.detail = record.at("detail");
    options.failed.push_back(std::move(failed));
  }
  for (const json& axis : told.at("axes")) {
    options.run.axes.push_back({axis.at("name"), {}});
    for (const json& value : axis.at("values")) options.run.axes.back().values.push_back(value_from(value));
  }
  options.run.quick       = told.at("quick");
  options.run.cold_start  = told.at("cold_start");
  options.run.check_only  = told.at("check_only");
  options.run.iterations  = told.at("iterations");
  options.run.warmup      = told.at("warmup");
  options.run.repeat      = told.at("repeat");
  options.run.seed        = told.at("seed");
  options.run.aa          = told.at("aa");
  options.run.profile_set = told.at("profile_set");
  options.run.folder      = told.at("folder");
  return options;
}

void write_line(int fd, const json& message) {
  const std::string line = message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = write(fd, line.data() + sent, line.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);  // the parent is gone; nobody is left to tell
    sent += static_cast<size_t>(n);
  }
}

class PipeEvents final : public Events {
 public:
  explicit PipeEvents(PhaseBoard& board) : board_(board) {}
  void phase(std::string_view variant, std::string_view phase, double fraction) override {
    board_.post(variant, phase, fraction);
  }
  void point(const PointRecord& point) override { write_line(kEventsFd, {{"point", lab::to_json(point)}}); }
  void profiled(const Point& at, std::string_view variant, const Profile& profile) override {
    json metrics = json::object();
    for (const auto& [name, metric] : profile.metrics)
      metrics[name] = {{"value", metric.value}, {"better", metric.better}};
    write_line(
        kEventsFd,
        {{"profile",
          {{"at", at.to_string()}, {"variant", variant}, {"metrics", metrics}, {"notes", profile.notes}}}});
  }

 private:
  PhaseBoard& board_;
};

int64_t resident_bytes(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (file >> key >> kib >> unit)
    if (key == "MemAvailable:") return kib * 1024;
  return int64_t{1} << 62;
}

// How a child ended.
struct Ending {
  bool complete   = false;        // it said so itself
  Outcome outcome = Outcome::ok;  // crashed | timeout | oom where it did not
  std::string detail;
  std::string variant;  // at whose turn
  bool suite_over = false;
};

// One child: started, watched, reaped. Points arrive while it runs.
Ending watch_child(const json& told, const RunOptions& run,
                   const std::function<void(const json&)>& on_message,
                   const std::function<void(const PhaseBoard::Phase&)>& on_tick, double suite_seconds_left) {
  int fds[2];
  FATHOM_SYSTEM(pipe2(fds, O_CLOEXEC));
  PhaseBoard board = PhaseBoard::create();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Through high numbers first, so that neither source is overwritten before it is used.
  posix_spawn_file_actions_adddup2(&actions, fds[1], 100);
  posix_spawn_file_actions_adddup2(&actions, board.fd(), 101);
  posix_spawn_file_actions_adddup2(&actions, 100, kEventsFd);
  posix_spawn_file_actions_adddup2(&actions, 101, kBoardFd);
  posix_spawn_file_actions_addclose(&actions, 100);
  posix_spawn_file_actions_addclose(&actions, 101);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO,
                                   STDOUT_FILENO);  // stdout is for data, and it is ours
  const std::string argument = told.dump();
  char* const argv[]         = {const_cast<char*>("fathom"), const_cast<char*>("__experiment"),
                                const_cast<char*>(argument.c_str()), nullptr};
  pid_t pid                  = 0;
  const int error            = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(fds[1]);
  if (error != 0) {
    close(fds[0]);
    throw SystemError(fmt::format("could not start a process for an experiment: {}", std::strerror(error)));
  }

  Ending ending;
  const auto started = Steady::now();
  const int64_t memory_limit =
      run.memory_limit_bytes > 0 ? run.memory_limit_bytes : available_bytes() / 10 * 9;
  std::string pending;
  const auto kill_for = [&](Outcome outcome, std::string why) {
    kill(pid, SIGKILL);
    ending.outcome = outcome;
    ending.detail  = std::move(why);
  };
  for (bool open = true; open;) {
    pollfd ready{fds[0], POLLIN, 0};
    if (poll(&ready, 1, 100) > 0) {
      char buffer[65536];
      const ssize_t n = read(fds[0], buffer, sizeof buffer);
      if (n == 0) open = false;
      if (n > 0) pending.append(buffer, static_cast<size_t>(n));
      for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
        const json message = json::parse(pending.substr(0, end));
        if (message.contains("done")) ending.complete = true;
        on_message(message);
      }
    }
    const PhaseBoard::Phase phase = board.read();
    on_tick(phase);
    if (ending.outcome != Outcome::ok) continue;  // killed: drain the pipe
    const double limit = kPhaseLimitS * run.timeout_multiplier;
    if (phase.seconds > limit)
      kill_for(Outcome::timeout, fmt::format("still in '{}' after {:.3g} s", phase.phase, limit));
    else if (suite_seconds_left > 0 && seconds_since(started) > suite_seconds_left) {
      kill_for(Outcome::timeout, "the suite's time is over (--suite-timeout)");
      ending.suite_over = true;
    } else if (const int64_t resident = resident_bytes(pid); resident > memory_limit)
      kill_for(Outcome::oom, fmt::format("{:.2f} GiB resident in '{}', limit {:.2f} GiB",
                                         static_cast<double>(resident) / 1073741824.0, phase.phase,
                                         static_cast<double>(memory_limit) / 1073741824.0));
  }
  close(fds[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  const PhaseBoard::Phase last = board.read();
  ending.variant               = last.variant;
  if (!ending.complete && ending.outcome == Outcome::ok) {
    ending.outcome = Outcome::crashed;
    ending.detail  = WIFSIGNALED(status)
                         ? fmt::format("ended by signal {} ({}) in '{}'", WTERMSIG(status),
                                       strsignal(WTERMSIG(status)), last.phase)
                         : fmt::format("ended with exit code {} in '{}'", WEXITSTATUS(status), last.phase);
  }
  return ending;
}

Outcome worst_of(const ExperimentRecord& experiment) {
  // In the order of exit codes: wrong, crash or time-out or memory, invalid; skipped only when all is.
  constexpr Outcome kOrder[] = {Outcome::wrong,   Outcome::crashed, Outcome::timeout, Outcome::oom,
                                Outcome::invalid, Outcome::ok,      Outcome::skipped};
  for (const Outcome outcome : kOrder)
    for (const PointRecord& point : experiment.points)
      for (const VariantRecord& variant : point.variants)
        if (variant.status == outcome) return outcome;
  return Outcome::ok;
}

// What the profiler saw, into the record of the variant it saw.
void merge_profile(const json& seen, ExperimentRecord& record) {
  for (PointRecord& point : record.points) {
    if (point.at.to_string() != seen.at("at").get<std::string>()) continue;
    for (VariantRecord& variant : point.variants) {
      if (variant.id != seen.at("variant").get<std::string>()) continue;
      for (const auto& [name, metric] : seen.at("metrics").items())
        variant.metrics[name] = {metric.at("value").get<double>(), metric.at("better").get<std::string>()};
      for (const json& note : seen.at("notes"))
        variant.detail += (variant.detail.empty() ? "" : "; ") + note.get<std::string>();
    }
  }
}

// Children until one comes through, each without the variants that ended the ones before.
void run_rounds_inside(const ExperimentInfo& experiment, MeasureOptions options, ExperimentRecord& record,
                       const std::function<void(const PhaseBoard::Phase&)>& on_tick,
                       double suite_seconds_left) {
  const size_t most = experiment.variants.size() + 1;
  for (size_t attempt = 0; attempt < most; ++attempt) {
    std::string error;  // the child's last words
    const Ending ending = watch_child(
        to_json(experiment, options), options.run,
        [&](const json& message) {
          if (message.contains("error")) error = message["error"];
          if (message.contains("profile")) merge_profile(message["profile"], record);
          if (!message.contains("point")) return;
          auto point = point_from_json(message["point"]);
          FATHOM_EXPECT(point.has_value(), "a child sent a point that cannot be read");
          options.done.push_back(point->at.to_string());
          record.points.push_back(std::move(*point));
        },
        on_tick, suite_seconds_left);
    if (ending.complete) return;
    const bool known = std::any_of(experiment.variants.begin(), experiment.variants.end(),
                                   [&](const VariantInfo& v) { return v.id == ending.variant; });
    VariantRecord failed;
    failed.id     = ending.variant;
    failed.status = ending.outcome;
    failed.detail = error.empty() ? ending.detail : error;
    if (!known || ending.suite_over) {
      record.status = ending.outcome;
      record.detail = failed.detail;
      return;
    }
    options.failed.push_back(std::move(failed));
  }
}

// Every sample in a process of its own, rounds alternating between variants.
void run_process_rounds(const ExperimentInfo& experiment, const MeasureOptions& given,
                        ExperimentRecord& record,
                        const std::function<void(const PhaseBoard::Phase&)>& on_tick) {
  const int64_t rounds   = given.run.repeat > 0 ? given.run.repeat : given.run.quick ? 12 : 24;
  MeasureOptions options = given;
  options.run.cold_start = true;
  std::vector<int> order_of;
  for (size_t v = 0; v < experiment.variants.size(); ++v)
    if (v == 0 || given.variants.empty() ||
        std::find(given.variants.begin(), given.variants.end(), experiment.variants[v].id) !=
            given.variants.end())
      order_of.push_back(static_cast<int>(v));
  std::vector<PointRecord> points;
  std::map<std::pair<size_t, size_t>, std::vector<double>> samples;  // (point, variant)
  for (int64_t round = 0; round < rounds; ++round)
    for (const int turn : measure::round_order(static_cast<int>(order_of.size()), round, given.run.seed)) {
      const size_t v      = static_cast<size_t>(order_of[static_cast<size_t>(turn)]);
      options.variants    = {experiment.variants[v].id};
      options.run.seed    = given.run.seed + static_cast<uint64_t>(round) * 1000 + v;
      size_t p            = 0;
      const Ending ending = watch_child(
          to_json(experiment, options), options.run,
          [&](const json& message) {
            if (!message.contains("point")) return;
            auto point = point_from_json(message["point"]);
            FATHOM_EXPECT(point.has_value() && !point->variants.empty(),
                          "a child sent a point that cannot be read");
            if (points.size() <= p) {
              points.push_back(*point);
              points.back().variants.assign(experiment.variants.size(), VariantRecord{});
            }
            VariantRecord& mine       = points[p].variants[v];
            const VariantRecord& seen = point->variants.front();
            if (mine.id.empty() || seen.status != Outcome::ok) mine = seen;
            samples[{p, v}].insert(samples[{p, v}].end(), seen.samples_ns.begin(), seen.samples_ns.end());
            ++p;
          },
          on_tick, 0);
      if (ending.complete || points.empty()) continue;
      for (PointRecord& point : points) {
        point.variants[v].id     = experiment.variants[v].id;
        point.variants[v].status = ending.outcome;
        point.variants[v].detail = ending.detail;
      }
    }
  for (size_t p = 0; p < points.size(); ++p) {
    PointRecord& point = points[p];
    point.cache        = "cold_process";
    point.rounds       = rounds;
    point.stopped      = "rounds";
    std::vector<std::vector<double>> of_point;
    for (size_t v = 0; v < point.variants.size(); ++v) of_point.push_back(samples[{p, v}]);
    set_times_and_ratios(point, of_point, RatioInterval::order_statistics);
    std::erase_if(point.variants, [](const VariantRecord& variant) { return variant.id.empty(); });
  }
  record.points = std::move(points);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

}  // namespace

bool needs_cpu_ceilings(const RunOptions& options) {
  if (options.check_only) return false;
  return std::any_of(options.targets.begin(), options.targets.end(), [](const Selection& target) {
    const ExperimentInfo* experiment = find_experiment(target.experiment);
    return experiment && experiment->backend == Backend::cpu;
  });
}

std::string machine_of(const RunOptions& options) {
  const bool gpu_only =
      !options.targets.empty() &&
      std::all_of(options.targets.begin(), options.targets.end(), [](const Selection& target) {
        const ExperimentInfo* experiment = find_experiment(target.experiment);
        return experiment && experiment->backend == Backend::cuda;
      });
  return gpu_only ? machine::gpu_machine_id() : machine::machine_id();
}

RunRecord run(const RunOptions& given, const ProgressSink& sink) {
  RunOptions options = given;
  if (options.seed == 0)
    options.seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  RunRecord result;
  result.started = utc_now();
  result.machine = machine_of(options);
  if (needs_cpu_ceilings(options)) machine::ceilings();  // measured here, once, and not by the first child
  const auto began = Steady::now();
  const int total  = static_cast<int>(options.targets.size());
  for (int done = 0; done < total; ++done) {
    const Selection& target          = options.targets[static_cast<size_t>(done)];
    const ExperimentInfo* experiment = find_experiment(target.experiment);
    FATHOM_EXPECT(experiment != nullptr, "no experiment " + target.experiment);
    ExperimentRecord record{.id          = experiment->id,
                            .question    = experiment->question,
                            .backend     = std::string(to_string(experiment->backend)),
                            .source_hash = std::string(source_hash(experiment->folder)),
                            .catalog     = experiment->catalog};
    const auto experiment_began = Steady::now();
    const auto on_tick          = [&](const PhaseBoard::Phase& phase) {
      // What is left of this experiment by its own count, and of the others by the average so far.
      const double here = seconds_since(experiment_began), all = seconds_since(began);
      const double own  = phase.fraction > 0.02 ? here * (1 - phase.fraction) / phase.fraction : 0;
      const double rest = done > 0 ? (all - here) / done * (total - done - 1) : 0;
      sink({.experiment   = record.id,
                     .variant      = phase.variant,
                     .phase        = phase.phase,
                     .done         = done,
                     .total        = total,
                     .seconds_left = own + rest});
    };
    const double left = options.suite_timeout_s > 0 ? options.suite_timeout_s - seconds_since(began) : 0;
    if (options.suite_timeout_s > 0 && left <= 0) {
      record.status = Outcome::timeout;
      record.detail = "the suite's time was over before its turn (--suite-timeout)";
    } else {
      MeasureOptions measure_options{.variants = target.variants, .failed = {}, .done = {}, .run = options};
      const bool own_process = std::any_of(experiment->variants.begin(), experiment->variants.end(),
                                           [](const VariantInfo& v) { return v.own_process; });
      if ((options.cold_start || own_process) && !options.check_only)
        run_process_rounds(*experiment, measure_options, record, on_tick);
      else
        run_rounds_inside(*experiment, measure_options, record, on_tick, left);
      if (record.status == Outcome::ok) record.status = worst_of(record);
    }
    record.seconds = seconds_since(experiment_began);
    result.experiments.push_back(std::move(record));
    sink({.experiment   = experiment->id,
          .variant      = {},
          .phase        = "finished",
          .done         = done + 1,
          .total        = total,
          .seconds_left = seconds_since(began) / (done + 1) * (total - done - 1),
          .finished     = &result.experiments.back()});
  }
  return result;
}

int child_main(int argc, char** argv, const ProfilerFactory& profiler_factory) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc < 3) return 5;
  const json told = json::parse(argv[2]);
  if (getppid() != told.at("parent").get<int>()) return 1;  // it died before the line above could tell us
  PhaseBoard board = PhaseBoard::open(kBoardFd);
  PipeEvents events(board);
  try {
    const ExperimentInfo* experiment = find_experiment(told.at("experiment").get<std::string>());
    FATHOM_EXPECT(experiment != nullptr, "the child does not know the experiment");
    const MeasureOptions options = options_from(told);
    std::unique_ptr<Profiler> profiler;
    if (profiler_factory && !options.run.profile_set.empty())
      profiler = profiler_factory(options.run.profile_set, options.run.folder);
    measure(*experiment, options, events, profiler.get());
  } catch (const std::exception& e) {
    write_line(kEventsFd, {{"error", e.what()}});
    return 1;
  }
  write_line(kEventsFd, {{"done", true}});
  // Static destructors of whatever a variant loaded are nobody's business any more.
  _exit(0);
}

}  // namespace fathom::lab
