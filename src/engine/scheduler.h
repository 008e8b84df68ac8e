// What the next step computes, and for whom: whose turn it is, and whether there are pages for it. It knows
// nothing of models, threads or clocks.
//
// A step is shared by decodes, which come first, and pieces of prompts. Where pages run out, those who came
// last, of the lowest priority, give way: their pages are given back, and they are computed anew when their
// turn comes again ("preemption by recompute", as in vLLM).
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "engine/block_manager.h"
#include "engine/config.h"
#include "engine/sequence.h"

namespace fathom::engine {

// Rows of one sequence in a step: positions first .. first + rows. The last `drafts` of them are guesses.
struct StepEntry {
  Sequence* sequence = nullptr;
  int64_t first = 0, rows = 0;
  std::vector<model::TokenId> drafts = {};
  bool samples      = false;  // the row before the drafts yields a token; with them, each row does
  int64_t admission = 0;
};

struct StepPlan {
  std::vector<StepEntry> entries;

  bool empty() const { return entries.empty(); }
  int64_t rows() const {
    int64_t sum = 0;
    for (const StepEntry& entry : entries) sum += entry.rows;
    return sum;
  }
};

// Of prompts: once a request, when it first begins to run.
struct SchedulerCounters {
  int64_t prompt_tokens = 0, prefix_queried_tokens = 0, prefix_hit_tokens = 0;
  int64_t preemptions = 0;
};

class Scheduler {
 public:
  // `blocks` must outlive it.
  Scheduler(const EngineConfig& config, BlockManager& blocks);

  void add(std::unique_ptr<Sequence> sequence);
  // The sequences it admits have running set, and whose first admission it is, cached_tokens.
  StepPlan plan();
  // What a step brought: the entry's rows but `rejected` ones are computed, and `tokens` come next. Call it
  // for every entry of a plan that ran, in any order, before finish().
  void commit(const StepEntry& entry, int64_t rejected, std::span<const model::TokenId> tokens);
  // Takes it out, in whatever state; its pages are free. It must be in no step in flight.
  std::unique_ptr<Sequence> finish(Sequence& sequence);

  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t waiting_tokens() const { return waiting_tokens_; }  // of their prompts
  bool idle() const { return running_.empty() && waiting_.empty(); }
  const SchedulerCounters& counters() const { return counters_; }
  // All it has, the running ones first, each part in order.
  std::vector<Sequence*> sequences() const;

 private:
  struct InOrder {
    using is_transparent = void;
    static const Sequence& of(const std::unique_ptr<Sequence>& sequence) { return *sequence; }
    static const Sequence& of(const Sequence& sequence) { return sequence; }
    bool operator()(const auto& a, const auto& b) const { return of(a).before(of(b)); }
  };

  void wait(std::unique_ptr<Sequence> sequence);
  std::unique_ptr<Sequence> leave_waiting(Sequence& sequence);
  void plan_decodes(StepPlan& plan, int64_t& budget);
  void plan_prompts(StepPlan& plan, int64_t& budget);
  void admit(StepPlan& plan, int64_t& budget);
  bool admit(Sequence& sequence, StepPlan& plan, int64_t& budget);
  void schedule(Sequence& sequence, StepPlan& plan, int64_t& budget);
  bool reserve(Sequence& sequence, int64_t end);
  // Whom `sequence` may push out; null where there is none.
  Sequence* victim(const Sequence& sequence, bool equals_too) const;
  void preempt(Sequence& sequence, StepPlan& plan, int64_t& budget);

  const EngineConfig config_;
  BlockManager& blocks_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order
  std::set<std::unique_ptr<Sequence>, InOrder> waiting_;
  int64_t waiting_tokens_ = 0;
  SchedulerCounters counters_;
};

}  // namespace fathom::engine
