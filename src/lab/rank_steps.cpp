#include "lab/rank_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/nvtx_range.h"
#include "lab/devices.h"
#include "lab/summary.h"
#include "measure/clock.h"

namespace fathom::lab {
namespace {

int64_t wall_now_ns() { return measure::now_ns(measure::Clock::wall); }

// The CPUs of one rank: its share of all, or all of them in turn where ranks outnumber CPUs.
std::vector<int> cpus_of(int rank, int ranks, const std::vector<int>& all) {
  const auto count = static_cast<int>(all.size());
  if (count < ranks) return {all[static_cast<size_t>(rank % count)]};
  return {all.begin() + count * rank / ranks, all.begin() + count * (rank + 1) / ranks};
}

void set_failed(VariantRecord& record, const RankSteps::Failure& failed) {
  if (failed.caught) return set_caught(record, *failed.caught);
  record.status = Outcome::skipped;
  record.skip   = failed.skip;
}

}  // namespace

RankSteps::RankSteps(const ExperimentInfo& experiment, uint64_t run_seed, RankGroup& group,
                     const std::vector<int>& cpus, int rank)
    : experiment_(experiment),
      run_seed_(run_seed),
      group_(group),
      device_(experiment.backend == Backend::cuda ? device_of_rank(rank) : nullptr),
      me_(rank, group.size(), device_, group.shared(), [&group] { group.barrier(); }),
      mine_(group.slot(rank)),
      pools_(cpus_of(rank, group.size(), cpus)),
      nonces_(run_seed + 1000003ull * static_cast<uint64_t>(rank)) {
  if (!device_) return;
  device_->make_current();  // for this thread, which launches
  clock_ = measure::gpu_clock(*device_);
}

Context RankSteps::context(size_t v) {
  return {device_ ? device_->stream() : nullptr, pools_.of(variant(v).threads), &me_};
}

bool RankSteps::attempt(const std::function<void()>& f) {
  std::optional<GroupBroken> broken;  // no fault of this rank
  try {
    const auto caught = guarded([&] {
      try {
        f();
      } catch (const GroupBroken& e) {
        broken = e;
      }
    });
    if (caught) mine_.fail(*caught);
    if (broken) throw *broken;
    return !caught;
  } catch (const NotEnoughMemory& e) {
    mine_.fail(Skip{"needs_memory", e.what()});
  } catch (const Unavailable& e) {
    mine_.fail(Skip{e.reason(), e.what()});
  }
  return false;
}

void RankSteps::attempt_or_break(const std::function<void()>& f) {
  if (attempt(f)) return;
  group_.abandon();
  throw GroupBroken("the variant failed on this rank");
}

std::optional<RankSteps::Failure> RankSteps::together(const std::function<void()>& f) {
  mine_.clear_failure();
  attempt(f);
  return first_failure();
}

std::optional<RankSteps::Failure> RankSteps::first_failure() {
  group_.barrier();
  std::optional<Failure> failed;
  for (int rank = 0; rank < group_.size() && !failed; ++rank)
    if (const RankSlot& slot = group_.slot(rank); slot.caught() || slot.skip())
      failed = Failure{slot.caught(), slot.skip()};
  group_.barrier();  // no rank clears its slot before all have read it
  return failed;
}

bool RankSteps::make_problems(const Point& at, int sets, std::vector<VariantRecord>& records) {
  const auto failed = together([&] { problems_.emplace(experiment_, at, sets, run_seed_, group_, me_); });
  if (!failed) return true;
  for (VariantRecord& record : records)
    if (record.status == Outcome::ok) set_failed(record, *failed);
  return false;
}

double RankSteps::prepare(size_t v) {
  refill(0);
  Context on          = context(v);
  const int64_t start = wall_now_ns();
  mine_.clear_failure();
  attempt_or_break([&] {
    (*problems_)[0].prepare(static_cast<int>(v), on);
    if (device_) device_->synchronize();
  });
  const auto took = static_cast<double>(wall_now_ns() - start);
  for (int set = 1; set < problems_->sets(); ++set)
    (*problems_)[set].bind(static_cast<int>(v), (*problems_)[0]);
  refill(0);
  return took;
}

double RankSteps::time_steps(size_t v, Problem& problem, int64_t steps, Context& on) {
  const NvtxRange range(variant(v).id.c_str());
  const auto run_steps = [&] {
    for (int64_t i = 0; i < steps; ++i) problem.call(static_cast<int>(v), on);
  };
  if (!clock_) {
    const int64_t start = wall_now_ns();
    attempt_or_break(run_steps);
    return static_cast<double>(wall_now_ns() - start);
  }
  double ns = 0;
  // Not held back by a spinning kernel: a GPU that waits for it would make all others wait.
  attempt_or_break([&] { ns = clock_->time(run_steps, /*held=*/false).ns; });
  return ns;
}

double RankSteps::sample(size_t v, int64_t set, const Sample& what, VariantRecord& record) {
  Problem& problem = (*problems_)[set];
  Context on       = context(v);
  problem.arena().poison(nonce_of_poison_ = (nonce_of_poison_ + 1) & 0xFFFF);
  me_.set_nonce(nonces_.next());
  mine_.clear_failure();
  mine_.nonce    = me_.nonce();
  mine_.elements = 0;
  problem.put_nonce(on);
  const uint64_t checksum = what.look ? problem.arena().input_checksum() : 0;
  if (experiment_.cache == Cache::cold) problem.arena().flush_from_caches();
  if (device_) device_->synchronize();
  group_.barrier();
  mine_.step_ns = time_steps(v, problem, what.steps, on) / static_cast<double>(what.steps);
  group_.barrier();
  attempt([&] { mine_.nonce_sum = problem.nonce_sum(on); });
  if (what.look) inspect_outputs(problem, set, checksum, what);
  if (const auto broken = problem.arena().broken_guard()) {
    mine_.fail(Caught{Outcome::wrong, "guard_band", *broken});
    problem.arena().repair_guards();
  }
  return conclude(what, record);
}

void RankSteps::inspect_outputs(Problem& problem, int64_t set, uint64_t checksum, const Sample& what) {
  const std::vector<const Problem*> ranks = problems_->of_all_ranks(set);
  const Inspection seen =
      inspect(problem, {.present = problems_->seed(set)}, checksum, what.check, what.timed, ranks);
  if (seen.caught) mine_.fail(*seen.caught);
  mine_.elements  = seen.elements();
  mine_.max_error = mine_.tolerance = 0;
  for (const Finding& finding : seen.findings)
    if (finding.max_error >= mine_.max_error) {
      mine_.max_error = finding.max_error;
      mine_.tolerance = finding.tolerance;
    }
  group_.barrier();  // nobody refills what others still read
}

// All ranks read the slots of all, so they come to the same conclusion.
double RankSteps::conclude(const Sample& what, VariantRecord& record) {
  const auto failed = first_failure();
  uint64_t sum      = 0;
  double slowest    = 0;
  for (int rank = 0; rank < group_.size(); ++rank) {
    sum += group_.slot(rank).nonce;
    slowest = std::max(slowest, group_.slot(rank).step_ns);
  }
  for (int rank = 0; rank < group_.size() && record.status == Outcome::ok; ++rank)
    if (group_.slot(rank).nonce_sum != sum)
      set_caught(record, {Outcome::wrong, what.timed ? "timed_check" : "nonce",
                          fmt::format("rank {} did not receive the other ranks' nonces", rank)});
  if (failed && record.status == Outcome::ok) set_failed(record, *failed);
  if (what.look && what.timed) {
    if (!record.checked) record.checked.emplace();
    ++record.checked->timed_calls;
    for (int rank = 0; rank < group_.size(); ++rank) {
      const RankSlot& slot = group_.slot(rank);
      record.checked->elements += slot.elements;
      if (slot.max_error < record.checked->max_error) continue;
      record.checked->max_error = slot.max_error;
      record.checked->tolerance = slot.tolerance;
    }
  }
  group_.barrier();  // nobody writes its slot again before all have read it
  return slowest;
}

}  // namespace fathom::lab
