#include "lab/timed_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "core/cpu_affinity.h"
#include "cuda/nvtx_range.h"
#include "lab/devices.h"
#include "lab/floor_check.h"
#include "lab/python_process.h"
#include "lab/summary.h"
#include "lab/thread_state.h"
#include "machine/topology.h"
#include "measure/clock.h"
#include "measure/interval.h"
#include "measure/latin_square.h"
#include "measure/noise.h"
#include "measure/statistics.h"
#include "measure/stopping.h"

namespace fathom::lab {
namespace {

constexpr int64_t kTimedChecks     = 7;  // timed calls that are verified, for each variant
constexpr int kCalibrating         = 3;  // samples, the fastest counts: the others may have been interrupted
constexpr double kLongSampleNs     = 10e6;  // of a sample that the floor is checked with a second time
constexpr int64_t kCheckedElements = 192;   // of each: 7 x 192 > 1,024
constexpr double kPrecision        = 0.01;  // half-width of the ratio's interval at which we stop
constexpr double kPrecisionOfGpu   = 0.005;
constexpr int64_t kFewestRounds    = 20;
constexpr int64_t kFewestWhenSlow  = 12;  // where 20 would take too long
constexpr int64_t kCallsForOneMore = 20;  // 5 % of extra work
constexpr int kMostRedone          = 5;

int64_t wall_clock_ns() { return measure::now_ns(measure::Clock::wall); }

std::map<std::string, double> to_map(const measure::Noise& noise) {
  std::map<std::string, double> map;
  if (noise.steal_s) map["steal_ms"] = *noise.steal_s * 1e3;
  if (noise.cpu_pressure_s) map["cpu_pressure_ms"] = *noise.cpu_pressure_s * 1e3;
  if (noise.run_delay_s) map["run_delay_ms"] = *noise.run_delay_s * 1e3;
  if (noise.involuntary_switches)
    map["involuntary_switches"] = static_cast<double>(*noise.involuntary_switches);
  if (noise.minor_faults) map["minor_faults"] = static_cast<double>(*noise.minor_faults);
  if (noise.major_faults) map["major_faults"] = static_cast<double>(*noise.major_faults);
  return map;
}

double median_of(const std::vector<double>& values) { return values.empty() ? 0 : measure::median(values); }

}  // namespace

TimedPoint::TimedPoint(const ExperimentInfo& experiment, const MeasureOptions& options, const Point& at,
                       ThreadPools& pools, Seeds& seeds, Events& events, double budget_s)
    : experiment_(experiment),
      options_(options),
      at_(at),
      pools_(pools),
      seeds_(seeds),
      events_(events),
      budget_s_(budget_s),
      timer_(make_sample_timer(experiment, pools.cpus())) {}

PointRecord TimedPoint::run(std::vector<VariantRecord> records) {
  events_.phase("", "prepare", 0);
  sets_.emplace(experiment_, at_, experiment_.sets, seeds_);
  build_rotation(records);
  prepare_and_warm_up();
  calibrate();
  compare_fresh_with_repeated();
  run_rounds();
  check_clocks();
  compare_whole_outputs();
  check_floors();
  check_peaks();
  return summarise(std::move(records));
}

PointRecord TimedPoint::run_once(std::vector<VariantRecord> records) {
  const int64_t began = wall_clock_ns();
  sets_.emplace(experiment_, at_, 1, seeds_);
  const auto inputs_ns = static_cast<double>(wall_clock_ns() - began);
  for (size_t v = 0; v < records.size(); ++v) {
    if (records[v].status != Outcome::ok) continue;
    Entry entry{.role = Role::variant, .variant = static_cast<int>(v), .name = records[v].id};
    entry.caught = sets_->overlap();
    if (entry.alive() && info(entry).has_prepare) prepare(entry);
    phase_ = "measure";
    if (entry.alive()) sample(entry, 1, 0, true, true);
    if (entry.alive()) add_later_calls(entry);
    entry.metrics["inputs_ns"] = {inputs_ns, "lower"};
    entries_.push_back(std::move(entry));
  }
  rounds_  = 1;
  stopped_ = "rounds";
  return summarise(std::move(records));
}

// What a call takes that is not the first, on fresh inputs like the first: the rest was spent on the first
// use.
void TimedPoint::add_later_calls(Entry& entry) {
  constexpr size_t kCalls     = 5;
  constexpr int64_t kBudgetNs = 300'000'000;
  const int64_t began         = wall_clock_ns();
  while (entry.alive() && entry.clock_ns.size() <= kCalls && wall_clock_ns() - began < kBudgetNs) {
    sets_->refill(0);
    sample(entry, 1, 0, false, true);
  }
  const std::vector<double> later(entry.clock_ns.begin() + 1, entry.clock_ns.end());
  if (!later.empty()) entry.metrics["later_call_ns"] = {measure::median(later), "lower"};
  while (entry.clock_ns.size() > 1) entry.forget_last_sample();
}

// Threads that a library starts here are free to run anywhere.
void TimedPoint::prepare(Entry& entry) {
  events_.phase(entry.name, "prepare", 0);
  std::optional<ScopedAffinity> free;
  if (info(entry).kind == Kind::library) free.emplace(pools_.cpus());
  Context on = context(entry);
  ThreadStates states(on.pool);
  entry.caught = guarded([&] {
    entry.prepare_ns = sets_->prepare(entry.variant, on);
    timer_->finish();
  });
  if (auto changed = states.after_prepare(info(entry)); changed && !entry.caught) entry.caught = changed;
}

void TimedPoint::build_rotation(const std::vector<VariantRecord>& records) {
  std::vector<std::pair<int, Isa>> wanted;  // controls: threads and instruction set
  for (size_t v = 0; v < records.size(); ++v) {
    if (records[v].status != Outcome::ok) continue;
    if (options_.run.aa && !entries_.empty()) break;
    Entry entry{.role = Role::variant, .variant = static_cast<int>(v), .name = records[v].id};
    if (const auto overlap = sets_->overlap()) entry.caught = overlap;
    entries_.push_back(std::move(entry));
    const std::pair control(pools_.of(records[v].threads).threads(),
                            isa_of(experiment_, experiment_.variants[v]));
    if (std::find(wanted.begin(), wanted.end(), control) == wanted.end()) wanted.push_back(control);
  }
  if (entries_.empty()) return;
  baseline_           = 0;
  const int reference = entries_[0].variant;
  entries_.push_back({.role = Role::clone, .variant = reference, .name = "again"});
  if (options_.run.aa)
    entries_.push_back({.role = Role::heavier_clone, .variant = reference, .name = "heavier"});
  if (!has_control(experiment_.backend, experiment_.limit) || options_.run.aa) return;
  if (experiment_.backend == Backend::cuda) wanted.resize(1);
  for (const auto& [threads, isa] : wanted) {
    entries_.push_back(
        {.role = Role::control, .variant = static_cast<int>(controls_.size()), .name = "control"});
    const Cost cost     = (*sets_)[0].cost();
    const int64_t bytes = rotated_bytes(experiment_, (*sets_)[0], sets_->size());
    controls_.push_back(experiment_.backend == Backend::cuda
                            ? gpu_control(experiment_.limit, cost, bytes, *device_of(experiment_))
                            : cpu_control(experiment_.limit, cost, bytes, threads, isa, pools_.of(threads)));
  }
}

void TimedPoint::prepare_and_warm_up() {
  for (Entry& entry : entries_) {
    if (entry.role == Role::control || !entry.alive()) continue;
    if (entry.role == Role::variant && info(entry).has_prepare) prepare(entry);
    if (&entry == &entries_[baseline_] && entry.alive()) {
      // The first call loads the kernels; then the clock settles.
      sample(entry, 1, 0, false, false);
      Context on = context(entry);
      if (entry.alive())
        entry.caught =
            guarded([&] { timer_->settle(info(entry), [&] { (*sets_)[0].call(entry.variant, on); }); });
      entry.forget_samples();
      if (!entry.alive()) continue;
    }
    // Verified calls on every set until two in a row agree within 10 %. Then caches, pages and a library's
    // pool are warm.
    phase_                 = "warm up";
    double last            = 0;
    const int64_t at_least = options_.run.warmup >= 0 ? options_.run.warmup : sets_->size();
    const int64_t at_most  = options_.run.warmup >= 0 ? options_.run.warmup : 20;
    const int64_t began    = wall_clock_ns();
    for (int64_t call = 0; call < std::max<int64_t>(1, at_most) && entry.alive(); ++call) {
      sample(entry, 1, static_cast<int>(call % sets_->size()), call < sets_->size(), false);
      if (!entry.alive()) break;
      const double now  = entry.wall_ns.back();
      entry.warm_ns     = call == 0 ? now : std::min(entry.warm_ns, now);
      const bool steady = std::abs(now - last) < 0.1 * now;
      last              = now;
      if (call + 1 >= at_least && (steady || wall_clock_ns() - began > 300'000'000)) break;
    }
    entry.forget_samples();
  }
  if (baseline_ >= 0 && !entries_[baseline_].alive()) {
    // Without its baseline the point has no ratios; the clone would fail the same way.
    for (Entry& entry : entries_)
      if (entry.role == Role::clone) entry.caught = entries_[baseline_].caught;
  }
}

void TimedPoint::calibrate() {
  if (options_.run.iterations > 0) {
    calls_ = options_.run.iterations;
  } else if (experiment_.cache != Cache::cold && !options_.run.cold_start) {
    // Each pass takes samples of the length that the one before found: a single call runs colder than several
    // in a row, and one that skips work it has done before looks honest until its samples are long.
    for (int pass = 0; pass < 6; ++pass) {
      double fastest = std::numeric_limits<double>::max(), sum = 0;
      for (const Entry& entry : entries_) {
        if (entry.role == Role::control || !entry.alive()) continue;
        fastest = std::min(fastest, entry.warm_ns);
        sum += entry.warm_ns;
      }
      if (sum == 0) break;
      const auto found = static_cast<double>(calls_);
      // Long enough for the clock in the fastest variant, short enough for 40 rounds of all.
      const double wanted = std::ceil(timer_->epoch_ns() / std::max(fastest, 1.0));
      calls_              = static_cast<int64_t>(std::max(1.0, std::min(wanted, budget_s_ * 1e9 / 40 / sum)));
      calls_              = std::min(calls_, timer_->most_calls());
      if (calls_ == 1 || (pass > 0 && static_cast<double>(calls_) < 1.5 * found)) break;
      for (Entry& entry : entries_) {
        if (entry.role == Role::control || !entry.alive()) continue;
        for (int i = 0; i < kCalibrating && entry.alive(); ++i) sample(entry, calls_, 0, false, false);
        if (!entry.alive()) continue;
        entry.warm_ns = *std::min_element(entry.wall_ns.begin(), entry.wall_ns.end());
        entry.forget_samples();
      }
    }
  }
  if (options_.run.aa && baseline_ >= 0) choose_extra_work();
}

// The heavier clone of --aa makes a 21st call for every 20, which is 5 % more work of the same kind. Where 20
// calls take too long for the rounds, or each sample must be one call (cold caches), it adds 5 % of
// arithmetic.
void TimedPoint::choose_extra_work() {
  const Entry& baseline = entries_[baseline_];
  const int64_t most    = timer_->most_calls() / (kCallsForOneMore + 1) * kCallsForOneMore;
  const int64_t calls = std::min(most, (calls_ + kCallsForOneMore - 1) / kCallsForOneMore * kCallsForOneMore);
  const double round_ns = static_cast<double>(std::ssize(entries_) * calls) * baseline.warm_ns;
  // A held GPU takes 1,024 launches, and a call of more than 100 us may be more than 50.
  const bool held_long =
      experiment_.backend == Backend::cuda && !info(baseline).syncs && baseline.warm_ns > 1e5;
  if (options_.run.iterations == 0 && experiment_.cache != Cache::cold && !held_long &&
      round_ns * kFewestRounds < budget_s_ * 1e9 && fit_behind_held_gpu(calls + calls / 4)) {
    calls_       = calls;
    extra_calls_ = calls / kCallsForOneMore;
  } else {
    extra_ns_ = baseline.warm_ns * static_cast<double>(calls_) / kCallsForOneMore;
  }
}

// Tried with the baseline, and with some calls to spare: the launches of one call may be many, and a held
// GPU's queue is bounded.
bool TimedPoint::fit_behind_held_gpu(int64_t calls) {
  Entry& baseline = entries_[baseline_];
  if (experiment_.backend != Backend::cuda || info(baseline).syncs) return true;
  const int doubtful = baseline.doubtful;
  sample(baseline, calls, 0, false, false);
  const bool fit    = baseline.doubtful == doubtful;
  baseline.doubtful = doubtful;
  if (!fit) baseline.caught.reset();
  baseline.forget_last_sample();
  return fit;
}

void TimedPoint::sample(Entry& entry, int64_t calls, int first_set, bool look, bool timed) {
  const int sets      = sets_->size();
  const bool one_set  = experiment_.cache == Cache::hot;
  Context on          = context(entry);
  const int set_count = one_set ? 1 : static_cast<int>(std::min<int64_t>(calls, sets));
  const auto set_of   = [&](int64_t call) {
    return one_set ? first_set : static_cast<int>((first_set + call) % sets);
  };
  const bool heavier  = entry.role == Role::heavier_clone;
  const int64_t extra = heavier ? extra_calls_ : 0;
  events_.phase(info(entry).id, phase_, fraction_);
  ThreadStates states(on.pool);
  nonce_ = (nonce_ + 1) & 0xFFFF;
  for (int s = 0; s < set_count; ++s) (*sets_)[set_of(s)].arena().poison(nonce_);
  if (experiment_.cache == Cache::cold) (*sets_)[first_set].arena().flush_from_caches();
  if (experiment_.cache == Cache::rotated && calls < sets) read_other_sets(first_set, set_count, on.pool);
  const SampleTimer::Reading reading = [&] {
    const NvtxRange range(info(entry).id.c_str());
    return timer_->time(
        info(entry), on.pool,
        [&] {
          for (int64_t call = 0; call < calls + extra; ++call) (*sets_)[set_of(call)].call(entry.variant, on);
          if (heavier && extra == 0) timer_->extra_work(extra_ns_);
        },
        !entry.called);
  }();
  entry.called     = true;
  const auto share = static_cast<double>(calls);
  entry.clock_ns.push_back(reading.clock_ns / share);
  entry.wall_ns.push_back(reading.wall_ns / share);
  entry.cycles.push_back(reading.cycles / share);
  entry.doubtful += reading.doubtful;
  const bool alone = options_.run.cold_start && entry.wall_ns.size() == 1;
  const bool excused =
      reading.doubtful && !alone && !doubtful_too_often(entry.doubtful, std::ssize(entry.wall_ns));
  if (!excused) entry.caught = reading.caught;
  if (auto changed = states.undo_changes(info(entry)); changed && !entry.caught) entry.caught = changed;
  if (entry.caught) return;

  for (int s = 0; s < set_count && !entry.caught; ++s) {
    const int set = set_of(s);
    if (!look) {
      // Cheap enough for every sample.
      if (const auto broken = (*sets_)[set].arena().broken_guard()) {
        entry.caught = Caught{Outcome::wrong, "guard_band", *broken};
        (*sets_)[set].arena().repair_guards();
      }
      continue;
    }
    const Inspection seen = inspect((*sets_)[set], sets_->history(set), sets_->checksum(set),
                                    {.sample = kCheckedElements,
                                     .seed   = seeds_.next(),
                                     .pool   = pools_.of_references(experiment_.backend)},
                                    timed);
    entry.caught          = seen.caught;
    if (timed) entry.elements += seen.elements();
    for (const Finding& finding : seen.findings) {
      double& largest = entry.largest_tolerance[finding.output];
      largest         = std::max(largest, finding.tolerance);
      if (finding.max_error >= entry.max_error) {
        entry.max_error = finding.max_error;
        entry.tolerance = finding.tolerance;
      }
    }
  }
  if (look && timed) ++entry.checked;
}

// All samples of a round begin with the same set. Where a sample has fewer calls than there are sets, it
// would find in the caches what the sample before it read, and be faster than the control, which moves the
// bytes of all sets. Reading the other sets leaves the caches as calls that take the sets in turn do.
void TimedPoint::read_other_sets(int first_set, int used, ThreadPool& pool) {
  if (experiment_.backend != Backend::cpu || experiment_.limit != Limit::memory) return;
  int64_t last_cache = 0;
  for (const machine::CpuCache& cache : machine::topology().caches)
    last_cache = std::max(last_cache, cache.bytes);
  // A call that moves much more than the caches hold leaves nothing of its set's beginning.
  if (working_set(experiment_, (*sets_)[first_set]) > 2 * last_cache) return;
  pool.run([&](int) {  // each worker: the caches of every core
    for (int s = used; s < sets_->size(); ++s) {
      const Arena& other                      = (*sets_)[(first_set + s) % sets_->size()].arena();
      [[maybe_unused]] volatile uint64_t read = other.input_checksum() + other.output_checksum();
    }
  });
}

// Pairs of calls on one set: new inputs, then the same inputs again, after the baseline too was called on
// them. Both times they are refilled and checked in the same way, so that both calls find the same state of
// the host's caches. A GPU's calls do not use these, and a check, for which inputs are copied to the host,
// may take a hundred times as long as a call: there the first pair is checked. An honest call takes the same
// time; a memo answers the second call from its store, or from what the baseline left.
void TimedPoint::compare_fresh_with_repeated() {
  constexpr int kPairs         = 7;
  constexpr double kBudgetNs   = 0.4e9;
  constexpr double kSuspicious = 1.5, kNearlyEvery = 1.2;
  // With one call a sample every timed call has inputs of its own.
  if (calls_ == 1 && experiment_.cache != Cache::hot) return;
  for (Entry& entry : entries_) {
    if (entry.role != Role::variant || !entry.alive()) continue;
    phase_ = "compare fresh with repeated inputs";
    std::vector<double> ratios;
    const int64_t began = wall_clock_ns();
    while (ratios.size() < kPairs && entry.alive()) {
      const uint64_t seed = seeds_.next();
      const bool look     = experiment_.backend == Backend::cpu || ratios.empty();
      sets_->refill_with(0, seed);
      sample(entry, 1, 0, look, true);
      if (Entry& baseline = entries_[baseline_]; &entry != &baseline && baseline.alive()) {
        sample(baseline, 1, 0, false, false);
        baseline.forget_last_sample();
      }
      sets_->refill_with(0, seed);
      if (entry.alive()) sample(entry, 1, 0, look, true);
      if (!entry.alive()) break;
      const size_t n = entry.wall_ns.size();
      ratios.push_back(entry.wall_ns[n - 2] / entry.wall_ns[n - 1]);
      if (ratios.size() >= 5 && wall_clock_ns() - began > kBudgetNs) break;
    }
    entry.forget_samples();
    entry.checked = entry.elements = 0;  // these calls are not among the timed ones
    if (!entry.alive()) continue;
    // All pairs but one: on a busy machine a repeated call can be interrupted too.
    const auto slower =
        std::count_if(ratios.begin(), ratios.end(), [](double r) { return r > kNearlyEvery; });
    if (slower + 1 >= std::ssize(ratios) && median_of(ratios) > kSuspicious)
      entry.caught = Caught{
          Outcome::invalid, "fresh_inputs",
          fmt::format("a call on inputs seen before, by it or the baseline, is {:.1f}x faster than on fresh "
                      "ones: it remembers",
                      median_of(ratios))};
  }
}

std::vector<double> TimedPoint::log_ratios(const Entry& entry) const {
  return lab::log_ratios(entries_[baseline_].clock_ns, entry.clock_ns);
}

double TimedPoint::confidence() const {
  int compared = 0;
  for (const Entry& entry : entries_)
    compared += entry.role == Role::variant && entry.alive() && &entry != &entries_[baseline_];
  return measure::bonferroni(0.95, std::max(1, compared));
}

bool TimedPoint::enough_checked() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.role != Role::variant || !entry.alive() || entry.checked >= kTimedChecks;
  });
}

// The log ratios of each entry that is compared with the baseline.
std::vector<std::vector<double>> TimedPoint::compared_series() const {
  std::vector<std::vector<double>> series;
  for (const Entry& entry : entries_)
    if (entry.role != Role::control && entry.alive() && &entry != &entries_[baseline_])
      series.push_back(log_ratios(entry));
  return series;
}

bool TimedPoint::intervals_exist() const {
  const auto series = compared_series();
  return std::all_of(series.begin(), series.end(), [&](const std::vector<double>& ratios) {
    return measure::median_interval(ratios, std::max(0.99, confidence())).has_value();
  });
}

bool TimedPoint::precise_enough() const {
  const auto series    = compared_series();
  double least_seconds = std::numeric_limits<double>::max();
  for (const Entry& entry : entries_)
    if (entry.role == Role::variant && entry.alive())
      least_seconds =
          std::min(least_seconds, 1e-9 * static_cast<double>(calls_) *
                                      std::accumulate(entry.wall_ns.begin(), entry.wall_ns.end(), 0.0));
  const bool gpu = experiment_.backend == Backend::cuda;
  const measure::StoppingRule rule{.half_width     = gpu ? kPrecisionOfGpu : kPrecision,
                                   .confidence     = confidence(),
                                   .min_rounds     = kFewestRounds,
                                   .min_measured_s = gpu ? 0 : 0.1,  // a GPU has no scheduler to average over
                                   .max_rounds     = std::numeric_limits<int64_t>::max(),
                                   .max_elapsed_s  = std::numeric_limits<double>::max()};
  return measure::should_stop(rule, {.rounds = rounds_, .measured_s = least_seconds, .log_ratios = series}) ==
         measure::StopReason::precision;
}

void TimedPoint::run_rounds() {
  if (baseline_ < 0) {
    stopped_ = "nothing to time";
    return;
  }
  const bool quick            = options_.run.quick;
  const int64_t cap           = options_.run.repeat > 0 ? options_.run.repeat : quick ? 40 : 400;
  const int64_t fewest        = std::min(cap, kFewestRounds);
  const int64_t began         = wall_clock_ns();
  const auto elapsed_s        = [&] { return static_cast<double>(wall_clock_ns() - began) * 1e-9; };
  const measure::Noise before = measure::read_noise();
  const uint64_t order_seed   = seeds_.next();
  double refill_share         = 0;  // of a round, when every set is refilled
  int redone                  = 0;  // rounds in which the device was throttled
  for (rounds_ = 0; rounds_ < cap;) {
    const int64_t round_began = wall_clock_ns();
    const int first_set       = static_cast<int>(rounds_ % sets_->size());
    const bool all_sets       = calls_ > 1 && refill_share < 0.1;
    for (int s = 0; s < (all_sets ? sets_->size() : 1); ++s) sets_->refill((first_set + s) % sets_->size());
    const double refill_ns =
        static_cast<double>(wall_clock_ns() - round_began) * (all_sets ? 1 : sets_->size());

    for (const int e : measure::round_order(static_cast<int>(entries_.size()), rounds_, order_seed)) {
      Entry& entry = entries_[e];
      if (!entry.alive()) continue;
      phase_    = "measure";
      fraction_ = std::max(elapsed_s() / budget_s_, static_cast<double>(rounds_) / static_cast<double>(cap));
      if (entry.role == Role::control) {
        events_.phase("", phase_, fraction_);
        entry.rates.push_back(controls_[entry.variant]->sample());
        continue;
      }
      // Decides which calls are verified: every second one at first, then one of 16.
      const bool look =
          entry.role == Role::variant && seeds_.next() % (entry.checked < kTimedChecks ? 2 : 16) == 0;
      sample(entry, calls_, first_set, look, true);
    }
    if (timer_->throttled() && redone < kMostRedone) {
      for (Entry& entry : entries_) {
        if (entry.role == Role::control)
          entry.rates.pop_back();
        else if (entry.alive())
          entry.forget_last_sample();
      }
      std::this_thread::sleep_for(
          std::chrono::milliseconds(std::min(2000, 250 << redone++)));  // it has to cool
      continue;
    }
    ++rounds_;
    refill_share = refill_ns / static_cast<double>(wall_clock_ns() - round_began);
    if (!entries_[baseline_].alive()) {
      stopped_ = "baseline failed";
      break;
    }
    const bool out_of_time = elapsed_s() > budget_s_;
    const bool minimum =
        rounds_ >= (out_of_time ? std::min(fewest, kFewestWhenSlow) : fewest) && enough_checked();
    if (!minimum || !intervals_exist()) {
      if (elapsed_s() < 8 * budget_s_) continue;
      stopped_ = "time";
      break;
    }
    if (out_of_time) {
      stopped_ = "time";
      break;
    }
    if (elapsed_s() > 0.3 && precise_enough()) {
      stopped_ = "precision";
      break;
    }
  }
  if (stopped_.empty()) stopped_ = "rounds";
  noise_ = to_map(measure::growth(before, measure::read_noise()));
  noise_.merge(timer_->telemetry());
  if (redone > 0) noise_["throttled_rounds_redone"] = redone;
  int doubtful = 0;
  for (const Entry& entry : entries_) doubtful += entry.doubtful;
  if (doubtful > 0) noise_["doubtful_samples"] = doubtful;
}

void TimedPoint::compare_whole_outputs() {
  if (baseline_ < 0 || !entries_[baseline_].alive()) return;
  std::vector<std::byte> theirs, ours;
  Arena& arena = (*sets_)[0].arena();
  for (Entry& entry : entries_) {
    if (entry.role != Role::variant || !entry.alive()) continue;
    phase_ = "compare whole outputs";
    sample(entry, 1, 0, false, true);
    entry.forget_last_sample();
    if (!entry.alive()) continue;
    entry.metrics = (*sets_)[0].metrics();
    if (&entry == &entries_[baseline_]) {
      check_many_elements(entry);
      if (!entry.alive()) return;
      arena.copy_outputs_to(theirs);
      continue;
    }
    arena.copy_outputs_to(ours);
    if (ours == theirs) continue;
    Checker checker({.sample = 0, .seed = 0, .twin = [&](const void* output) {
                       return static_cast<const void*>(theirs.data() +
                                                       (*sets_)[0].checked_arena().offset_in_copy(output));
                     }});
    (*sets_)[0].check(checker);
    for (const Finding& finding : checker.findings()) {
      // Both sides may be off by the tolerance, and the largest tolerance is known of a sample only.
      const double allowed = 8 * std::max(entry.largest_tolerance[finding.output],
                                          entries_[baseline_].largest_tolerance[finding.output]);
      if (finding.nans > 0 || finding.max_error > allowed)
        entry.caught =
            Caught{Outcome::wrong, "whole_output",
                   fmt::format(
                       "{} differs from the baseline's by {:.3g} somewhere ({} of {} elements differ at all)",
                       finding.output, finding.max_error, finding.wrong, finding.elements)};
      else if (finding.other_runs > 0)
        entry.caught =
            Caught{Outcome::wrong, "whole_output",
                   fmt::format(
                       "{} runs of {} elements of {} are unlike the baseline's, the first from element {} on",
                       finding.other_runs, WholeRuns::kLength, finding.output, finding.first_other)};
    }
  }
}

// The baseline's outputs, which the others' are compared with, against the reference, on ever more elements:
// up to a tenth as many as the outputs have bytes, or as take about a third of a second. A pass takes four
// times as long as the one before, so none begins after a quarter of that.
void TimedPoint::check_many_elements(Entry& entry) {
  constexpr int64_t kBudgetNs = 333'000'000;
  const int64_t began         = wall_clock_ns();
  for (int64_t many = 4 * kCheckedElements;
       10 * many <= (*sets_)[0].arena().output_bytes() && wall_clock_ns() - began < kBudgetNs / 4;
       many *= 4) {
    const Inspection seen = inspect(
        (*sets_)[0], sets_->history(0), sets_->checksum(0),
        {.sample = many, .seed = seeds_.next(), .pool = pools_.of_references(experiment_.backend)}, true);
    entry.caught = seen.caught;
    if (entry.caught) return;
    entry.elements += seen.elements();
  }
}

void TimedPoint::check_floors() {
  const Cost cost     = (*sets_)[0].cost();
  const int64_t bytes = working_set(experiment_, (*sets_)[0]);
  for (Entry& entry : entries_) {
    if (entry.role != Role::variant || !entry.alive() || entry.clock_ns.empty()) continue;
    const int threads = pools_.of(info(entry).threads).threads();
    const auto floor  = floor_of_call(threads);
    if (!floor) continue;
    double fastest = 0;
    for (const Entry& control : entries_)
      if (control.role == Role::control && !control.rates.empty() &&
          (experiment_.backend == Backend::cuda || controls_[control.variant]->threads() >= threads))
        fastest = std::max(fastest, *std::max_element(control.rates.begin(), control.rates.end()));
    const auto control_ns   = fastest > 0 ? std::optional(controls_[0]->limit_ns(fastest)) : std::nullopt;
    const auto five_samples = [&](int64_t calls) {
      phase_ = "probe again";
      std::vector<double> ns;
      for (int i = 0; i < 5 && entry.alive(); ++i) {
        sample(entry, calls, i % sets_->size(), false, true);
        ns.push_back(entry.wall_ns.back());
        entry.forget_last_sample();
      }
      return ns;
    };
    const auto below_floor = [&](double median_ns, int64_t calls) {
      return check_floor(
          median_ns, floor, control_ns, [&] { return five_samples(calls); },
          [&] { return floor_measured_again(experiment_.backend, cost, bytes, threads); });
    };
    const double call_ns = median_of(entry.wall_ns);
    auto caught          = below_floor(call_ns, calls_);
    // A variant that works once a sample and then finds its output written does little of the declared work
    // in a sample of many more calls.
    const auto fit     = static_cast<int64_t>(kLongSampleNs / call_ns);
    const int64_t many = std::min({64 * calls_, fit, timer_->most_calls()});
    if (!caught && calls_ > 1 && many > 2 * calls_) {
      const std::vector<double> longer = five_samples(many);
      if (entry.alive()) caught = below_floor(median_of(longer), many);
    }
    if (caught) entry.caught = caught;
  }
}

const TimedPoint::Entry* TimedPoint::control_of(const Entry& entry) const {
  const int threads = pools_.of(info(entry).threads).threads();
  for (const Entry& control : entries_) {
    if (control.role != Role::control) continue;
    // A GPU has one control, however many host threads a variant uses.
    const Control& limit = *controls_[control.variant];
    if (experiment_.backend == Backend::cuda ||
        (limit.threads() == threads && limit.isa() == isa_of(experiment_, info(entry))))
      return &control;
  }
  return nullptr;
}

std::vector<double> TimedPoint::shares_of_limit(const Entry& entry) const {
  std::vector<double> shares;
  const Entry* control = control_of(entry);
  if (!control) return shares;
  const Control& limit = *controls_[control->variant];
  for (size_t r = 0; r < std::min(control->rates.size(), entry.wall_ns.size()); ++r)
    shares.push_back(limit.limit_ns(control->rates[r]) / entry.wall_ns[r]);
  return shares;
}

void TimedPoint::check_peaks() {
  if (experiment_.backend != Backend::cpu || experiment_.limit != Limit::flops) return;
  for (Entry& entry : entries_) {
    if (entry.role != Role::variant || !entry.alive()) continue;
    if (const Entry* control = control_of(entry))
      entry.caught = check_peak(shares_of_limit(entry), controls_[control->variant]->words());
  }
}

void TimedPoint::check_clocks() {
  for (Entry& entry : entries_)
    if (entry.role == Role::variant && entry.alive() && info(entry).python)
      entry.caught = info(entry).python->check_clock(calls_);
}

std::optional<double> TimedPoint::floor_of_call(int threads) {
  return floor_ns(experiment_.backend, (*sets_)[0].cost(), working_set(experiment_, (*sets_)[0]), threads);
}

}  // namespace fathom::lab
