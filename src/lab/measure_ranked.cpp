#include "lab/measure_ranked.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cuda/device.h"
#include "lab/floor_check.h"
#include "lab/input_sets.h"
#include "lab/interleaved_ceilings.h"
#include "lab/rank_group.h"
#include "lab/rank_steps.h"
#include "lab/summary.h"
#include "lab/variant_records.h"
#include "machine/gpu.h"
#include "machine/nvml.h"
#include "measure/clock.h"
#include "measure/latin_square.h"
#include "measure/statistics.h"

namespace fathom::lab {
namespace {

constexpr int64_t kWarmSteps          = 5;
constexpr int64_t kCheckedSteps       = 7;    // timed steps that are verified, for each variant
constexpr int64_t kElementsOfAStep    = 192;  // of each, on each rank
constexpr int64_t kFewestRankedRounds = 20;
constexpr double kRankedSampleNs      = 1e5;  // a sample on GPUs is as many steps as last so long ...
constexpr int64_t kMaxGpuSteps        = 64;   // ... at most so many

// One rank's part of the whole experiment. All ranks run the same steps in the same order, since everything
// that decides about it is either the same on all (seeds, records) or read from the slots of all behind a
// barrier.
class RankRun {
 public:
  RankRun(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events, RankGroup& group,
          const std::vector<int>& cpus, int rank)
      : experiment_(experiment),
        options_(options),
        events_(events),
        group_(group),
        rank_(rank),
        steps_(experiment, options.run.seed, group, cpus, rank),
        shared_seeds_(options.run.seed) {
    if (rank != 0 || !steps_.device()) return;
    if (const auto found = machine::nvml_gpu(machine::gpu(steps_.device()->id())->uuid)) nvml_ = *found;
  }

  void run() {
    std::vector<VariantRecord> records = blank_records(experiment_, options_);
    for (size_t v = 1; v < records.size(); ++v)  // the baseline always runs
      if (!options_.variants.empty() && std::find(options_.variants.begin(), options_.variants.end(),
                                                  records[v].id) == options_.variants.end())
        records[v] = {.status = Outcome::skipped};
    check_all(records);
    if (options_.run.check_only) return report({.stopped = "checked only", .variants = std::move(records)});
    for (const Point& at : timed_points(experiment_, options_)) report(time_point(at, records));
  }

 private:
  const VariantInfo& variant(size_t v) const { return experiment_.variants[v]; }
  void post(size_t v, const char* phase, double fraction) {
    if (rank_ != 0) return;
    group_.variant() = static_cast<int>(v);
    events_.phase(variant(v).id, phase, fraction);
  }
  void report(PointRecord point) {
    if (rank_ != 0) return;
    std::erase_if(point.variants, [](const VariantRecord& record) { return record.id.empty(); });
    group_.variant() = -1;
    group_.say(to_json(point).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  double prepare(size_t v) {
    if (!variant(v).has_prepare) return -1;
    post(v, "prepare", 0);
    return steps_.prepare(v);
  }

  // Every element of two steps on different inputs, on every rank.
  void check_all(std::vector<VariantRecord>& records) {
    for (const Point& at : check_points(experiment_)) {
      if (!any_to_run(records) || !steps_.make_problems(at, 1, records)) return;
      for (size_t v = 0; v < records.size(); ++v) {
        if (records[v].status != Outcome::ok || beyond_up_to(variant(v), at)) continue;
        prepare(v);
        post(v, "check", 0);
        for (int step = 0; step < 2 && records[v].status == Outcome::ok; ++step) {
          steps_.refill(0);
          steps_.sample(v, 0, {.look = true}, records[v]);
        }
        if (!records[v].detail.empty()) records[v].detail += fmt::format(" (at {})", at.to_string());
      }
    }
  }

  PointRecord time_point(const Point& at, const std::vector<VariantRecord>& records) {
    const bool rotated = experiment_.cache == Cache::rotated;
    PointRecord point{.at       = at,
                      .cache    = std::string(to_string(experiment_.cache)),
                      .clock    = steps_.device() ? "gpu" : "wall",
                      .variants = records_at(experiment_, at, records)};
    if (!any_to_run(point.variants)) return point;
    if (!steps_.make_problems(at, rotated ? experiment_.sets : 1, point.variants)) return point;
    const Cost cost = steps_.problems()[0].cost();
    for (VariantRecord& record : point.variants) {
      record.bytes_read    = cost.read + cost.disk_read;
      record.bytes_written = cost.written;
      record.flops         = cost.flops;
    }
    warm_up(point);
    make_control(cost, point);
    run_rounds(point);
    collect_metrics(point);
    check_floors(cost, point);
    set_times_and_ratios(point, samples_, RatioInterval::order_statistics);
    set_shares(point);
    score_predictions(experiment_, point);
    return point;
  }

  void warm_up(PointRecord& point) {
    for (int set = 0; set < steps_.problems().sets(); ++set) steps_.refill(set);
    double fastest = std::numeric_limits<double>::max();
    for (size_t v = 0; v < point.variants.size(); ++v) {
      VariantRecord& record = point.variants[v];
      if (record.status != Outcome::ok) continue;
      if (const double took = prepare(v); took >= 0) record.prepare_ns = took;
      post(v, "warm up", 0);
      const int64_t steps = options_.run.warmup >= 0 ? std::max<int64_t>(1, options_.run.warmup) : kWarmSteps;
      for (int64_t i = 0; i < steps && record.status == Outcome::ok; ++i)
        fastest = std::min(fastest, steps_.sample(v, i % steps_.problems().sets(), {}, record));
    }
    const double wanted    = steps_.device() ? std::ceil(kRankedSampleNs / std::max(fastest, 1.0)) : 1;
    point.calls_per_sample = options_.run.iterations > 0 ? options_.run.iterations
                             : experiment_.cache == Cache::cold
                                 ? 1
                                 : std::clamp<int64_t>(static_cast<int64_t>(wanted), 1, kMaxGpuSteps);
  }

  // Each rank has its own control, and all run at once, as the steps do.
  void make_control(const Cost& cost, PointRecord& point) {
    control_.reset();
    if (!has_control(experiment_.backend, experiment_.limit)) return;
    const int64_t bytes = rotated_bytes(experiment_, steps_.problems()[0], experiment_.sets);
    const auto failed   = steps_.together([&] {
      control_ = steps_.device()
                       ? gpu_control(experiment_.limit, cost, bytes, *steps_.device())
                       : cpu_control(experiment_.limit, cost, bytes, 1, Isa::compiled, steps_.pools().of(1));
    });
    if (failed) return control_.reset();
    point.limit = fmt::format("{}, on each of {} ranks", control_->words(), group_.size());
  }

  void run_rounds(PointRecord& point) {
    const size_t control = point.variants.size();
    std::vector<size_t> turns;
    for (size_t v = 0; v < control; ++v)
      if (point.variants[v].status == Outcome::ok) turns.push_back(v);
    if (control_) turns.push_back(control);
    samples_.assign(control, {});
    limits_ns_.clear();
    const double budget_s = seconds_for_a_point(experiment_, options_);
    const int64_t cap     = options_.run.repeat > 0 ? options_.run.repeat : options_.run.quick ? 40 : 200;
    const int64_t began   = measure::now_ns(measure::Clock::wall);
    point.stopped         = "rounds";
    for (point.rounds = 0; point.rounds < cap; ++point.rounds) {
      const double elapsed_s = rank0_elapsed_s(began);
      if (elapsed_s > budget_s && point.rounds >= std::min(kFewestRankedRounds, cap)) {
        point.stopped = "time";
        break;
      }
      const int64_t set = point.rounds % steps_.problems().sets();
      steps_.refill(set);
      for (const int turn :
           measure::round_order(static_cast<int>(turns.size()), point.rounds, options_.run.seed)) {
        const size_t v = turns[static_cast<size_t>(turn)];
        if (v == control) {
          sample_control();
          continue;
        }
        VariantRecord& record = point.variants[v];
        if (record.status != Outcome::ok) continue;
        post(v, "measure",
             std::max(elapsed_s / budget_s, static_cast<double>(point.rounds) / static_cast<double>(cap)));
        // Which steps are verified is decided here, round by round: often at first, then now and then.
        const bool often = !record.checked || record.checked->timed_calls < kCheckedSteps;
        const bool look  = shared_seeds_.next() % (often ? 2 : 16) == 0;
        const double ns  = steps_.sample(v, set,
                                         {.look  = look,
                                          .timed = true,
                                          .steps = point.calls_per_sample,
                                          .check = {.sample = kElementsOfAStep, .seed = shared_seeds_.next()}},
                                         record);
        samples_[v].push_back(ns);
      }
    }
  }

  // Of untimed steps: what rank 0's problem says of the last one, and what its GPU moved over NVLink.
  void collect_metrics(PointRecord& point) {
    for (size_t v = 0; v < point.variants.size(); ++v) {
      VariantRecord& record = point.variants[v];
      if (record.status != Outcome::ok) continue;
      // All ranks have ended their samples when this one has, and none has begun the next.
      const auto before = nvlink_traffic();
      steps_.sample(v, 0, {.steps = point.calls_per_sample}, record);
      const auto after = nvlink_traffic();
      if (record.status != Outcome::ok) continue;
      const CallMetrics metrics = steps_.problems()[0].metrics();
      record.metrics.insert(metrics.begin(), metrics.end());
      if (!before || !after) continue;
      const auto steps                    = static_cast<double>(point.calls_per_sample);
      record.metrics["nvlink_sent_bytes"] = {
          static_cast<double>(after->sent_bytes - before->sent_bytes) / steps, "lower"};
      record.metrics["nvlink_received_bytes"] = {
          static_cast<double>(after->received_bytes - before->received_bytes) / steps, "lower"};
    }
  }

  std::optional<machine::NvlinkTraffic> nvlink_traffic() const {
    return nvml_ ? nvml_->nvlink_traffic() : std::nullopt;
  }

  double rank0_elapsed_s(int64_t began) {
    steps_.mine().elapsed_s = static_cast<double>(measure::now_ns(measure::Clock::wall) - began) * 1e-9;
    group_.barrier();
    const double elapsed = group_.slot(0).elapsed_s;
    group_.barrier();
    return elapsed;
  }

  void sample_control() {
    group_.barrier();
    steps_.mine().limit_ns = control_->limit_ns(control_->sample());
    group_.barrier();
    double slowest = 0;
    for (int rank = 0; rank < group_.size(); ++rank) slowest = std::max(slowest, group_.slot(rank).limit_ns);
    limits_ns_.push_back(slowest);
    group_.barrier();
  }

  void check_floors(const Cost& cost, PointRecord& point) {
    const int64_t bytes    = working_set(experiment_, steps_.problems()[0]);
    const int threads      = steps_.pools().of(kAllThreads).threads();
    steps_.mine().floor_ns = floor_ns(experiment_.backend, cost, bytes, threads).value_or(0);
    group_.barrier();
    double floor = 0;
    for (int rank = 0; rank < group_.size(); ++rank) floor = std::max(floor, group_.slot(rank).floor_ns);
    group_.barrier();
    if (floor > 0) point.floor_ns = floor;
    const auto fastest = limits_ns_.empty()
                             ? std::nullopt
                             : std::optional(*std::min_element(limits_ns_.begin(), limits_ns_.end()));
    for (size_t v = 0; v < point.variants.size(); ++v) {
      VariantRecord& record = point.variants[v];
      if (record.status != Outcome::ok || samples_[v].empty()) continue;
      const auto probe_again = [&] {
        post(v, "probe again", 1);
        std::vector<double> again;
        for (int i = 0; i < 5 && record.status == Outcome::ok; ++i)
          again.push_back(steps_.sample(v, i % steps_.problems().sets(),
                                        {.timed = true, .steps = point.calls_per_sample}, record));
        return again;
      };
      // Rank 0 measures, for all.
      const auto floor_again = [&]() -> std::optional<double> {
        if (rank_ == 0)
          steps_.mine().floor_ns =
              floor_measured_again(experiment_.backend, cost, bytes, threads).value_or(0);
        group_.barrier();
        const double again = group_.slot(0).floor_ns;
        group_.barrier();
        return again > 0 ? std::optional(again) : std::nullopt;
      };
      const auto caught =
          check_floor(measure::median(samples_[v]), point.floor_ns, fastest, probe_again, floor_again);
      if (caught && record.status == Outcome::ok) set_caught(record, *caught);
    }
  }

  void set_shares(PointRecord& point) {
    for (size_t v = 0; v < point.variants.size(); ++v) {
      VariantRecord& record = point.variants[v];
      if (!record.time_ns) continue;
      std::vector<double> shares;
      for (size_t r = 0; r < std::min(limits_ns_.size(), samples_[v].size()); ++r)
        shares.push_back(limits_ns_[r] / samples_[v][r]);
      if (!shares.empty()) record.share_of_limit = measure::median(shares);
    }
  }

  const ExperimentInfo& experiment_;
  const MeasureOptions& options_;
  Events& events_;
  RankGroup& group_;
  int rank_;
  RankSteps steps_;
  Seeds shared_seeds_;                    // the same on all ranks
  std::optional<machine::NvmlGpu> nvml_;  // rank 0's
  std::unique_ptr<Control> control_;
  std::vector<std::vector<double>> samples_;  // [variant][round], a step
  std::vector<double> limits_ns_;             // [round], of the rank with the slowest control
};

// How the variant failed at which a group broke.
VariantRecord failure_of(RankGroup& group, const VariantInfo& variant) {
  VariantRecord record{.id = variant.id};
  set_caught(record, {Outcome::crashed, "exception", group.death()});
  for (int rank = 0; rank < group.size(); ++rank) {
    if (const auto caught = group.slot(rank).caught()) {
      set_caught(record, *caught);
      break;
    }
    if (const auto skip = group.slot(rank).skip())
      return {.id = variant.id, .status = Outcome::skipped, .skip = skip};
  }
  return record;
}

}  // namespace

void measure_ranked(const ExperimentInfo& experiment, const MeasureOptions& given, Events& events) {
  MeasureOptions options      = given;
  const std::vector<int> cpus = allowed_cpus();  // before a pool pins this thread
  for (size_t attempt = 0; attempt <= experiment.variants.size(); ++attempt) {
    RankGroup group(experiment.ranks, experiment.ranks_as, experiment.shared_bytes);
    const bool complete =
        group.run([&](int rank) { RankRun(experiment, options, events, group, cpus, rank).run(); },
                  [&](const std::string& line) {
                    const auto point = point_from_json(nlohmann::json::parse(line));
                    FATHOM_EXPECT(point.has_value(), "rank 0 sent a point that cannot be read");
                    options.done.push_back(point->at.to_string());
                    events.point(*point);
                  });
    if (complete) return;
    const int variant = group.variant();
    if (variant < 0) throw SystemError("the ranks could not start: " + group.death());
    options.failed.push_back(failure_of(group, experiment.variants[static_cast<size_t>(variant)]));
  }
}

}  // namespace fathom::lab
