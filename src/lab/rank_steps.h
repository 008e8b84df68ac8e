// The steps of one rank, in lock-step with all others: what a sample is, what is checked of it, and how ranks
// come to the same conclusion about it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lab/experiment_info.h"
#include "lab/input_sets.h"
#include "lab/rank.h"
#include "lab/rank_group.h"
#include "lab/rank_problems.h"
#include "lab/record.h"
#include "lab/thread_pools.h"
#include "lab/verified_call.h"
#include "measure/gpu_clock.h"

namespace fathom::lab {

class RankSteps {
 public:
  struct Sample {
    bool look = false, timed = false;  // checked; one of the timed ones
    int64_t steps          = 1;        // in a row
    Checker::Options check = {};
  };

  // `cpus`: those of all ranks.
  RankSteps(const ExperimentInfo& experiment, uint64_t run_seed, RankGroup& group,
            const std::vector<int>& cpus, int rank);

  RankSlot& mine() { return mine_; }
  Device* device() const { return device_; }
  ThreadPools& pools() { return pools_; }
  RankProblems& problems() { return *problems_; }

  // All ranks make their problems; false, and `records` say why, where one of them cannot.
  bool make_problems(const Point& at, int sets, std::vector<VariantRecord>& records);
  void refill(int64_t set) { problems_->refill(set, ++fills_); }
  // On inputs of another fill; nanoseconds.
  double prepare(size_t variant);
  // A sample of all ranks on that set: the nanoseconds of a step on the slowest. What was caught is in
  // `record`, alike on all ranks.
  double sample(size_t variant, int64_t set, const Sample& what, VariantRecord& record);

  struct Failure {
    std::optional<Caught> caught;
    std::optional<Skip> skip;
  };
  // Runs f, which waits for no other rank, on every rank. Afterwards all ranks know the first failure of any.
  std::optional<Failure> together(const std::function<void()>& f);

 private:
  const VariantInfo& variant(size_t v) const { return experiment_.variants[v]; }
  Context context(size_t v);
  // Runs f; false, and this rank's slot says why, where it threw.
  bool attempt(const std::function<void()>& f);
  // Runs f, in which ranks wait for each other: a failure ends the group.
  void attempt_or_break(const std::function<void()>& f);
  std::optional<Failure> first_failure();
  double time_steps(size_t v, Problem& problem, int64_t steps, Context& on);
  void inspect_outputs(Problem& problem, int64_t set, uint64_t checksum, const Sample& what);
  double conclude(const Sample& what, VariantRecord& record);

  const ExperimentInfo& experiment_;
  uint64_t run_seed_;
  RankGroup& group_;
  Device* device_;
  Rank me_;
  RankSlot& mine_;
  ThreadPools pools_;
  Seeds nonces_;
  std::unique_ptr<measure::GpuClock> clock_;
  std::optional<RankProblems> problems_;
  uint64_t fills_           = 0;
  uint32_t nonce_of_poison_ = 0;
};

}  // namespace fathom::lab
