// One timed point of one experiment: its input sets, the rotation of its variants, and what was seen.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "lab/control.h"
#include "lab/defence.h"
#include "lab/runner.h"
#include "lab/stopwatch.h"

namespace fathom::lab {

// One pool for each number of threads that variants declare; worker 0 of each is the calling thread.
class Pools {
 public:
  ThreadPool& of(int threads);  // kAllThreads: every host thread
  const std::vector<int>& cpus() const { return cpus_; }

 private:
  // Asked once, before the first pool pins this thread.
  const std::vector<int> cpus_ = allowed_cpus();
  const int host_threads_      = host_threads();
  std::map<int, std::unique_ptr<ThreadPool>> pools_;
};

// A seed for every purpose of a run, none used twice.
class Seeds {
 public:
  explicit Seeds(uint64_t run_seed) : run_(run_seed) {}
  uint64_t next();

 private:
  uint64_t run_;
  uint64_t count_ = 0;
};

// The input sets of a point and the seeds that they hold.
class InputSets {
 public:
  InputSets(const ExperimentInfo& experiment, const Point& at, int count, Seeds& seeds);
  int size() const { return static_cast<int>(problems_.size()); }
  Problem& operator[](int set) { return *problems_[set]; }
  const SeedHistory& history(int set) const { return histories_[set]; }
  uint64_t checksum(int set) const { return checksums_[set]; }
  void refill(int set);  // from a fresh seed
  void refill_with(int set, uint64_t seed);
  // Runs the variant's prepare() on set 0 under a seed of its own and hands its launch to every set;
  // nanoseconds.
  int64_t prepare(int variant, Context& context);
  std::optional<Caught> overlap();

 private:
  Seeds& seeds_;
  std::vector<std::unique_ptr<Problem>> problems_;
  std::vector<SeedHistory> histories_;
  std::vector<uint64_t> checksums_;
};

class TimedPoint {
 public:
  TimedPoint(const ExperimentInfo& experiment, const MeasureOptions& options, const Point& at, Pools& pools,
             Seeds& seeds, Events& events, double budget_s);
  // `records`: one for each variant, already marked where it is skipped or has failed.
  PointRecord run(std::vector<VariantRecord> records);
  // For a process of its own: one call of each variant, the first this process makes, verified.
  PointRecord run_once(std::vector<VariantRecord> records);

 private:
  enum class Role { variant, clone, heavier_clone, control };
  struct Entry {
    Role role;
    int variant = 0;  // of the experiment; of the control: its number
    std::string name;
    std::optional<Caught> caught;
    std::vector<double> clock_ns, wall_ns;  // a call, one value a round
    std::vector<double> cycles;             // a call, of a GPU's clock; empty where it was not read
    std::vector<double> rates;              // of a control
    double warm_ns  = 0;                    // estimate from the warm-up
    int64_t checked = 0, elements = 0;
    double max_error = 0, tolerance = 0;
    std::map<std::string, double> largest_tolerance;  // by output
    int64_t prepare_ns = -1;
    bool called        = false;  // by this process, before
    int late           = 0;      // of the samples
    void forget_samples() {
      clock_ns.clear();
      wall_ns.clear();
      cycles.clear();
      late = 0;
    }
    void forget_last_sample() {
      clock_ns.pop_back();
      wall_ns.pop_back();
      cycles.pop_back();
    }
    bool alive() const { return !caught; }
  };

  void build_rotation(const std::vector<VariantRecord>& records);
  int64_t working_set();  // bytes
  void prepare(Entry& entry);
  void prepare_and_warm_up();
  void calibrate();
  void compare_fresh_with_repeated();
  void run_rounds();
  void compare_whole_outputs();
  std::optional<double> floor_of(const Cost& cost, int threads);
  void check_floors();
  PointRecord summarise(std::vector<VariantRecord> records);

  const VariantInfo& info(const Entry& entry) const { return experiment_.variants[entry.variant]; }
  Context context(const Entry& entry) { return {stopwatch_->stream(), pools_.of(info(entry).threads)}; }
  // One sample: `calls` calls over the input sets from `first_set` on; checks the last ones where `look`.
  void sample(Entry& entry, int64_t calls, int first_set, bool look, bool timed);
  std::vector<std::vector<double>> compared_series() const;
  bool intervals_exist() const;
  bool precise_enough() const;
  std::vector<double> log_ratios(const Entry& entry) const;
  double confidence() const;
  bool enough_checked() const;

  const ExperimentInfo& experiment_;
  const MeasureOptions& options_;
  Point at_;
  Pools& pools_;
  Seeds& seeds_;
  Events& events_;
  double budget_s_;
  std::optional<InputSets> sets_;
  std::unique_ptr<Stopwatch> stopwatch_;
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<Control>> controls_;
  int baseline_      = -1;  // entry
  int64_t calls_     = 1;
  int64_t rounds_    = 0;
  uint32_t nonce_    = 0;
  double extra_ns_   = 0;
  std::string phase_ = "warm up";  // what the parent is told before each sample
  double fraction_   = 0;
  std::string stopped_;
  std::map<std::string, double> noise_;
};

}  // namespace fathom::lab
