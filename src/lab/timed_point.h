// One timed point of one experiment: its input sets, the rotation of its variants, and their samples.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "lab/experiment_info.h"
#include "lab/input_sets.h"
#include "lab/interleaved_ceilings.h"
#include "lab/measure_options.h"
#include "lab/record.h"
#include "lab/sample_timer.h"
#include "lab/thread_pools.h"
#include "lab/verified_call.h"

namespace fathom::lab {

class TimedPoint {
 public:
  TimedPoint(const ExperimentInfo& experiment, const MeasureOptions& options, const Point& at,
             ThreadPools& pools, Seeds& seeds, Events& events, double budget_s);
  // `records`: one for each variant, already marked where it is skipped or has failed.
  PointRecord run(std::vector<VariantRecord> records);
  // For a process of its own: one verified call of each variant, the first that this process makes, and some
  // more that tell what the first use cost.
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
    CallMetrics metrics;                              // that the problem reports of a call
    int64_t prepare_ns = -1;
    bool called        = false;  // by this process, before
    int doubtful       = 0;      // samples whose reading a busy host also produces
    void forget_samples() {
      clock_ns.clear();
      wall_ns.clear();
      cycles.clear();
      doubtful = 0;
    }
    void forget_last_sample() {
      clock_ns.pop_back();
      wall_ns.pop_back();
      cycles.pop_back();
    }
    bool alive() const { return !caught; }
  };

  void build_rotation(const std::vector<VariantRecord>& records);
  void add_later_calls(Entry& entry);
  void prepare(Entry& entry);
  void prepare_and_warm_up();
  void calibrate();
  void choose_extra_work();
  bool fit_behind_held_gpu(int64_t calls);
  void compare_fresh_with_repeated();
  void run_rounds();
  void compare_whole_outputs();
  void check_many_elements(Entry& entry);
  std::optional<double> floor_of_call(int threads);
  void check_floors();
  void check_peaks();
  void check_clocks();
  // The control of the variant's threads and instruction set; null where the limit has none.
  const Entry* control_of(const Entry& entry) const;
  std::vector<double> shares_of_limit(const Entry& entry) const;  // one a round
  PointRecord summarise(std::vector<VariantRecord> records);

  const VariantInfo& info(const Entry& entry) const { return experiment_.variants[entry.variant]; }
  Context context(const Entry& entry) { return {timer_->stream(), pools_.of(info(entry).threads)}; }
  // One sample: `calls` calls over the input sets from `first_set` on; checks the last ones where `look`.
  void sample(Entry& entry, int64_t calls, int first_set, bool look, bool timed);
  void read_other_sets(int first_set, int used, ThreadPool& pool);
  std::vector<std::vector<double>> compared_series() const;
  bool intervals_exist() const;
  bool precise_enough() const;
  std::vector<double> log_ratios(const Entry& entry) const;
  double confidence() const;
  bool enough_checked() const;

  const ExperimentInfo& experiment_;
  const MeasureOptions& options_;
  Point at_;
  ThreadPools& pools_;
  Seeds& seeds_;
  Events& events_;
  double budget_s_;
  std::optional<InputSets> sets_;
  std::unique_ptr<SampleTimer> timer_;
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<Control>> controls_;
  int baseline_        = -1;  // entry
  int64_t calls_       = 1;
  int64_t rounds_      = 0;
  uint32_t nonce_      = 0;
  int64_t extra_calls_ = 0;          // of the heavier clone's samples; or, where that is 0,
  double extra_ns_     = 0;          // arithmetic of that length after its calls
  std::string phase_   = "warm up";  // what the parent is told before each sample
  double fraction_     = 0;
  std::string stopped_;
  std::map<std::string, double> noise_;
};

}  // namespace fathom::lab
