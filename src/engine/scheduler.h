// Decides which sequences the next step computes, and allocates their pages. Knows nothing of models, threads
// or clocks.
//
// A step has a budget of tokens. Decodes come first; chunks of prompts take the rest. Where pages run out,
// the latest sequence of the lowest priority is preempted: its pages are freed and it is recomputed later
// (preemption by recomputation, as in vLLM).
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "engine/block_manager.h"
#include "engine/config.h"
#include "engine/draft_budget.h"
#include "engine/memory_pressure.h"
#include "engine/proposer.h"
#include "engine/sequence.h"

namespace fathom::engine {

// The tokens of one sequence in a step: positions first .. first + rows, one row of the batch each. The last
// rows are the drafts.
struct ScheduledSequence {
  Sequence* sequence = nullptr;
  int64_t first = 0, rows = 0;
  std::vector<model::TokenId> drafts = {};
  bool samples      = false;  // a token is sampled from the last row before the drafts, and from each draft's
  int64_t admission = 0;      // Sequence::admissions when it was scheduled
  std::vector<float> confidence = {};  // of the drafts (Draft::confidence)
  // Its pages may hold keys and values that rows of sequences before it in this step write.
  bool reads_rows_of_step = false;
};

struct SchedulerOutput {
  std::vector<ScheduledSequence> sequences;
  bool asked_for_drafts = false;

  bool empty() const { return sequences.empty(); }
  int64_t rows() const {
    int64_t sum = 0;
    for (const ScheduledSequence& scheduled : sequences) sum += scheduled.rows;
    return sum;
  }
};

// The counters of prompts grow once a request, when it is first admitted.
struct SchedulerCounters {
  int64_t prompt_tokens = 0, prefix_queried_tokens = 0, prefix_hit_tokens = 0, received_hit_tokens = 0;
  int64_t preemptions = 0;
  int64_t held_steps  = 0;  // steps that kept a request waiting for memory_pressure.h
};

// What may change between steps. Answers do not depend on it.
struct SchedulerSetting {
  int64_t draft_tokens = 0, step_tokens = 0;
};

class Scheduler {
 public:
  // `blocks` must outlive it.
  Scheduler(const EngineConfig& config, BlockManager& blocks);

  void add(std::unique_ptr<Sequence> sequence);
  // From the next step on; at most the configured numbers.
  void set(const SchedulerSetting& setting);
  // Schedules a step. Sets `running` of the sequences that it admits, and `cached_tokens` at their first
  // admission.
  SchedulerOutput schedule();
  // Whether the next step may have drafts: it must then be scheduled after the output of the one before.
  bool may_draft() const;
  // Drafts come from this proposer, which must outlive the scheduler, and not from one of its own.
  void draft_with(Proposer& proposer) { proposer_ = &proposer; }
  // A step without prompts took that long, from the output of the step before to its own; the draft budget
  // learns from it. `accepted` drafts were right.
  void took(const SchedulerOutput& step, int64_t accepted, double seconds);
  // Records the result of a step: all rows but the `rejected` drafts are computed, and `tokens` were sampled.
  // Call it for every sequence of a step that ran, in any order, before finish().
  void commit(const ScheduledSequence& scheduled, int64_t rejected, std::span<const model::TokenId> tokens);
  // Removes a sequence, running or waiting, and frees its pages. It must not be in a step in flight.
  std::unique_ptr<Sequence> finish(Sequence& sequence);
  // Call it after the last finish() before a planned step is launched, without the rows of those who have
  // finished. Where they were to compute blocks in it that others have found, or in a step that failed, these
  // are preempted, and their rows leave the step.
  void preempt_holders_of_lost_blocks(SchedulerOutput& step);

  // For an update of the weights (engine/weight_update.h). While held, only sequences that have begun are
  // scheduled: those that were admitted once, preempted ones among them.
  void hold_admission(bool held) { held_ = held; }
  std::vector<Sequence*> begun() const;
  // Of these and the following, precondition: no step is planned or in flight. Preempts all running
  // sequences.
  void retract();
  // Cached prefixes are not found any more. Running sequences keep their pages.
  void reset_prefix_cache();

  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t waiting_tokens() const { return waiting_tokens_; }  // of the waiting prompts
  bool idle() const { return running_.empty() && waiting_.empty(); }
  const SchedulerCounters& counters() const { return counters_; }
  int64_t admission_holds() const { return pressure_.holds(); }
  // The running sequences in order, then the waiting ones in order.
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
  std::unique_ptr<Sequence> leave_running(Sequence& sequence);
  void schedule_decodes(SchedulerOutput& step, int64_t& budget);
  static bool decodes(const Sequence& sequence);
  int64_t draft_length() const;
  std::vector<Draft> drafts_of_running(SchedulerOutput& step);
  void schedule_prefills(SchedulerOutput& step, int64_t& budget);
  void schedule_chunk(Sequence& sequence, SchedulerOutput& step, int64_t& budget);
  void admit(SchedulerOutput& step, int64_t& budget);
  bool admit(Sequence& sequence, SchedulerOutput& step, int64_t& budget);
  Sequence* next_waiting() const;
  bool allocate(Sequence& sequence, int64_t end);
  int64_t claimed_pages() const;
  // The last running sequence, if `sequence` may preempt it; else null.
  Sequence* victim(const Sequence& sequence, bool equal_priority_too) const;
  void preempt(Sequence& sequence, SchedulerOutput& step, int64_t& budget);

  EngineConfig config_;
  BlockManager& blocks_;
  const std::unique_ptr<Proposer> own_proposer_;
  Proposer* proposer_ = nullptr;  // null: no drafts
  DraftBudget draft_budget_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order
  std::set<std::unique_ptr<Sequence>, InOrder> waiting_;
  int64_t waiting_tokens_ = 0;
  bool held_              = false;  // hold_admission()
  bool lost_blocks_       = false;  // a sequence finished, and blocks were planned that it was to compute
  MemoryPressure pressure_;
  SchedulerCounters counters_;
};

}  // namespace fathom::engine
