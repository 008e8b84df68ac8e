#include "compile/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compile/executable.h"
#include "core/expect.h"
#include "core/rng.h"
#include "measure/clock.h"
#include "measure/interval.h"
#include "measure/statistics.h"

namespace fathom::compile {
namespace {

constexpr int kCallsOfCandidate = 5;
constexpr int kFewestRounds = 12, kMostRounds = 100;  // of the final comparison
constexpr double kBetter = 1.02;                      // by less, a launch keeps its default

Schedule schedule_at(const search::TuningSpace& space, const search::Configuration& at) {
  Schedule schedule;
  for (size_t axis = 0; axis < at.size(); ++axis) {
    const std::string& name = space.axes[axis].name;
    if (name == "block") schedule.block = at[axis];
    if (name == "chunk") schedule.chunk = at[axis];
    if (name == "threads") schedule.threads = at[axis] > 1;
  }
  return schedule;
}

// Memory for a program's inputs and outputs, inputs between -1 and 1.
class Tensors {
 public:
  Tensors(const Graph& graph, std::span<const int64_t> symbols) {
    uint64_t seed = 1;
    for (const int id : graph.inputs()) {
      const Type& type = graph[id].type;
      const int64_t n  = add(type, symbols);
      if (type.dtype == DType::bf16)
        fill_uniform(reinterpret_cast<bf16*>(memory_.back().data()), n, seed++, -1, 1);
      else
        fill_uniform(reinterpret_cast<float*>(memory_.back().data()), n, seed++, -1, 1);
      from.push_back(memory_.back().data());
    }
    for (const Output& output : graph.outputs) {
      add(graph[output.node].type, symbols);
      to.push_back(memory_.back().data());
    }
  }

  std::vector<std::byte> outputs() const {
    std::vector<std::byte> bytes;
    for (size_t o = from.size(); o < memory_.size(); ++o)
      bytes.insert(bytes.end(), memory_[o].data(), memory_[o].data() + memory_[o].size());
    return bytes;
  }

  std::vector<const void*> from;
  std::vector<void*> to;

 private:
  int64_t add(const Type& type, std::span<const int64_t> symbols) {
    const int64_t n = product(type.shape).value(symbols);
    memory_.emplace_back(n * traits(type.dtype).bits / 8);
    return n;
  }

  std::vector<Buffer<std::byte>> memory_;
};

class Tuner {
 public:
  Tuner(const Graph& graph, const Plan& plan, std::span<const int64_t> symbols, ThreadPool& pool)
      : symbols_(symbols),
        pool_(pool),
        space_(tuning_space(graph, plan, pool.threads())),
        default_(graph, plan),
        candidate_(graph, plan),
        tensors_(graph, symbols),
        launch_ns_(plan.groups.size()),
        best_(plan.groups.size()),
        best_ns_(plan.groups.size(), std::numeric_limits<double>::infinity()) {
    call(default_);
    expected_ = tensors_.outputs();
  }

  Tuned run(const TuneOptions& options) {
    Tuned tuned{.schedules = Schedules(best_.size())};
    tuned.of = space_.axes.empty() ? 1 : search::size(space_);
    if (tuned.of > 1) search(options, tuned);
    if (best_ != tuned.schedules) compare(options, tuned);
    return tuned;
  }

 private:
  double call(Executable& executable, std::span<int64_t> launch_ns = {}) {
    const int64_t begin = measure::now_ns(measure::Clock::wall);
    executable.run(symbols_, tensors_.from, tensors_.to, pool_, launch_ns);
    return static_cast<double>(measure::now_ns(measure::Clock::wall) - begin);
  }

  // The least time of each launch over a few calls.
  std::vector<double> launch_times(const Schedule& schedule) {
    candidate_.set_schedules(Schedules(best_.size(), schedule));
    call(candidate_);
    FATHOM_EXPECT(tensors_.outputs() == expected_,
                  fmt::format("a schedule (block {}, chunk {}, {}) changed bits of a result", schedule.block,
                              schedule.chunk, schedule.threads ? "threads" : "one thread"));
    std::vector<double> least(best_.size(), std::numeric_limits<double>::infinity());
    for (int i = 0; i < kCallsOfCandidate; ++i) {
      call(candidate_, launch_ns_);
      for (size_t g = 0; g < least.size(); ++g)
        least[g] = std::min(least[g], static_cast<double>(launch_ns_[g]));
    }
    return least;
  }

  void search(const TuneOptions& options, Tuned& tuned) {
    best_ns_ = launch_times({});
    for (double& ns : best_ns_) ns /= kBetter;
    const double of_candidate = (kCallsOfCandidate + 2) * std::max(call(default_), 1.0);
    const double affordable   = std::min(options.seconds * 1e9 / 2 / of_candidate, 1e6);
    const int64_t budget      = std::clamp<int64_t>(static_cast<int64_t>(affordable), 1, tuned.of);
    const search::Strategy strategy =
        options.strategy.value_or(budget == tuned.of ? search::Strategy::grid : search::Strategy::local);
    const auto cost = [&](const search::Configuration& at) {
      const Schedule schedule       = schedule_at(space_, at);
      const std::vector<double> now = launch_times(schedule);
      double sum                    = 0;
      for (size_t g = 0; g < now.size(); ++g) {
        sum += now[g];
        if (now[g] >= best_ns_[g]) continue;
        best_ns_[g] = now[g];
        best_[g]    = schedule;
      }
      return sum;
    };
    tuned.tried =
        static_cast<int64_t>(search::minimise(space_, cost, strategy, budget, 1).evaluations.size());
  }

  void compare(const TuneOptions& options, Tuned& tuned) {
    candidate_.set_schedules(best_);
    call(candidate_);
    FATHOM_EXPECT(tensors_.outputs() == expected_, "schedules together changed bits of a result");
    std::vector<double> default_ns, best_ns, log_ratios;
    const int64_t end =
        measure::now_ns(measure::Clock::wall) + static_cast<int64_t>(options.seconds * 1e9 / 2);
    for (int round = 0; round < kMostRounds; ++round) {
      if (round >= kFewestRounds && measure::now_ns(measure::Clock::wall) > end) break;
      double ns[2];
      for (const int which : {round % 2, 1 - round % 2}) ns[which] = call(which ? candidate_ : default_);
      default_ns.push_back(ns[0]);
      best_ns.push_back(ns[1]);
      log_ratios.push_back(std::log(std::max(ns[0], 1.0) / std::max(ns[1], 1.0)));
    }
    tuned.default_ns    = measure::median(default_ns);
    tuned.best_ns       = measure::median(best_ns);
    const auto interval = measure::ratio_interval(log_ratios, 0.95);
    tuned.faster        = interval && interval->lo > 1;
    if (tuned.faster) tuned.schedules = best_;
  }

  const std::span<const int64_t> symbols_;
  ThreadPool& pool_;
  const search::TuningSpace space_;
  Executable default_, candidate_;
  Tensors tensors_;
  std::vector<std::byte> expected_;
  std::vector<int64_t> launch_ns_;  // of one call
  Schedules best_;
  std::vector<double> best_ns_;
};

}  // namespace

search::TuningSpace tuning_space(const Graph& graph, const Plan& plan, int threads) {
  const auto any = [&](const auto& chooses) {
    return std::any_of(plan.groups.begin(), plan.groups.end(), chooses);
  };
  search::TuningSpace space;
  if (any(chooses_block)) space.axes.push_back({"block", {std::begin(kBlocks), std::end(kBlocks)}});
  if (any([&](const Group& group) { return chooses_chunk(graph, group); }))
    space.axes.push_back({"chunk", {std::begin(kChunks), std::end(kChunks)}});
  if (threads > 1) space.axes.push_back({"threads", {1, threads}});
  return space;
}

Tuned tune(const Graph& graph, const Plan& plan, std::span<const int64_t> symbols, ThreadPool& pool,
           const TuneOptions& options) {
  return Tuner(graph, plan, symbols, pool).run(options);
}

}  // namespace fathom::compile
