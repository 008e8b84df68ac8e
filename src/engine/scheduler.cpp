#include "engine/scheduler.h"

#include <algorithm>
#include <limits>

#include "core/expect.h"
#include "engine/ngram.h"

namespace fathom::engine {

Scheduler::Scheduler(const EngineConfig& config, BlockManager& blocks) : config_(config), blocks_(blocks) {}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  sequence->draft_tokens = config_.draft_tokens;
  wait(std::move(sequence));
}

void Scheduler::wait(std::unique_ptr<Sequence> sequence) {
  waiting_tokens_ += sequence->prompt_tokens();
  waiting_.insert(std::move(sequence));
}

std::unique_ptr<Sequence> Scheduler::leave_waiting(Sequence& sequence) {
  const auto at = waiting_.find(sequence);
  FATHOM_EXPECT(at != waiting_.end(), "the scheduler does not have this sequence");
  waiting_tokens_ -= sequence.prompt_tokens();
  return std::move(waiting_.extract(at).value());
}

StepPlan Scheduler::plan() {
  StepPlan plan;
  plan.entries.reserve(running_.size() + 8);
  int64_t budget = config_.chunked_prefill ? config_.step_tokens : std::numeric_limits<int64_t>::max();
  plan_decodes(plan, budget);
  plan_prompts(plan, budget);
  admit(plan, budget);
  // Prompts that wait for each other's pages: the last gives way.
  while (plan.empty() && running_.size() > 1) {
    Sequence& last = *running_.back();
    if (last.pending > 0 || last.unscheduled() == 0) break;  // its step is in flight
    preempt(last, plan, budget);
    plan_decodes(plan, budget);
    plan_prompts(plan, budget);
  }
  return plan;
}

// Everybody's next token.
void Scheduler::plan_decodes(StepPlan& plan, int64_t& budget) {
  const bool drafting = config_.draft_tokens > 0 && running() <= config_.draft_sequences;
  for (size_t r = 0; r < running_.size() && budget > 0; ++r) {
    Sequence& sequence = *running_[r];
    if (sequence.unscheduled() != 1 || sequence.scheduled < sequence.prompt_tokens()) continue;
    std::span<const model::TokenId> draft;
    if (drafting && sequence.pending == 0) {
      // No more than could be answered beside the token that comes anyway.
      const int64_t most =
          std::min({sequence.draft_tokens, budget - 1, sequence.request.max_tokens - sequence.answered() - 1,
                    config_.max_context - sequence.known()});
      draft = ngram_draft(sequence.tokens, most);
      if (!blocks_.could_reserve(sequence.pages, sequence.scheduled + 1 + static_cast<int64_t>(draft.size())))
        draft = {};
    }
    const auto drafts = static_cast<int64_t>(draft.size());
    while (!reserve(sequence, sequence.scheduled + 1 + drafts)) {
      Sequence* last = victim(sequence, true);
      if (!last) last = &sequence;
      const bool itself = last == &sequence;
      preempt(*last, plan, budget);
      if (itself) break;
    }
    if (!sequence.running) break;  // all behind it are gone already
    plan.entries.push_back({.sequence  = &sequence,
                            .first     = sequence.scheduled,
                            .rows      = 1 + drafts,
                            .drafts    = {draft.begin(), draft.end()},
                            .samples   = true,
                            .admission = sequence.admissions});
    sequence.scheduled += 1 + drafts;
    ++sequence.pending;
    sequence.drafted += drafts;
    budget -= 1 + drafts;
  }
}

void Scheduler::plan_prompts(StepPlan& plan, int64_t& budget) {
  for (size_t r = 0; r < running_.size() && budget > 0; ++r) {
    Sequence& sequence = *running_[r];
    const int64_t rows = sequence.unscheduled();
    if (rows == 0 || (rows == 1 && sequence.scheduled >= sequence.prompt_tokens())) continue;
    schedule(sequence, plan, budget);
  }
}

// As many of its rows as budget and pages allow.
void Scheduler::schedule(Sequence& sequence, StepPlan& plan, int64_t& budget) {
  int64_t rows = std::min(sequence.unscheduled(), budget);
  while (!reserve(sequence, sequence.scheduled + rows)) {
    if (Sequence* last = victim(sequence, false)) {
      preempt(*last, plan, budget);
      continue;
    }
    rows = blocks_.room(sequence.pages) - sequence.scheduled;
    if (rows <= 0 || !config_.paged_kv) return;
  }
  const bool whole = rows == sequence.unscheduled();
  plan.entries.push_back({.sequence  = &sequence,
                          .first     = sequence.scheduled,
                          .rows      = rows,
                          .samples   = whole,
                          .admission = sequence.admissions});
  sequence.scheduled += rows;
  sequence.pending += whole ? 1 : 0;
  budget -= rows;
}

bool Scheduler::reserve(Sequence& sequence, int64_t end) {
  return blocks_.reserve(sequence.pages, config_.paged_kv ? end : config_.max_context);
}

void Scheduler::admit(StepPlan& plan, int64_t& budget) {
  if (!config_.continuous_batching && !running_.empty()) return;
  const int64_t most = config_.continuous_batching ? config_.max_sequences
                                                   : std::min(config_.max_sequences, config_.static_batch);
  while (!waiting_.empty() && budget > 0) {
    Sequence& first = **waiting_.begin();
    while (running() >= most) {
      Sequence* last = victim(first, false);
      if (!last) return;
      preempt(*last, plan, budget);
    }
    if (!admit(first, plan, budget)) return;
  }
}

bool Scheduler::admit(Sequence& sequence, StepPlan& plan, int64_t& budget) {
  const int64_t hit = blocks_.adopt(sequence.pages, sequence.tokens, sequence.request.cache_salt);
  // A prompt that does not fit whole would only push others out, or wait half-read.
  const int64_t end = config_.paged_kv ? sequence.known() : config_.max_context;
  while (!blocks_.could_hold(sequence.pages, end)) {
    Sequence* last = victim(sequence, false);
    if (!last) {
      blocks_.release(sequence.pages);
      return false;
    }
    preempt(*last, plan, budget);
  }
  const auto place = std::upper_bound(running_.begin(), running_.end(), sequence, InOrder());
  running_.insert(place, leave_waiting(sequence));
  sequence.running  = true;
  sequence.computed = sequence.scheduled = hit;
  if (sequence.admissions++ == 0) {
    sequence.cached_tokens = hit;
    counters_.prompt_tokens += sequence.prompt_tokens();
    counters_.prefix_queried_tokens += config_.prefix_cache ? sequence.prompt_tokens() : 0;
    counters_.prefix_hit_tokens += hit;
  }
  schedule(sequence, plan, budget);
  return true;
}

void Scheduler::commit(const StepEntry& entry, int64_t rejected, std::span<const model::TokenId> tokens) {
  Sequence& sequence = *entry.sequence;
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  if (entry.samples) --sequence.pending;
  const auto drafts = static_cast<int64_t>(entry.drafts.size());
  if (drafts > 0) {
    // Twice as many where all were right, else as many as would have been, and one.
    const int64_t accepted = drafts - rejected;
    sequence.accepted += accepted;
    sequence.draft_tokens =
        rejected == 0 ? std::min(2 * sequence.draft_tokens, config_.draft_tokens) : accepted + 1;
  }
  if (!sequence.running || sequence.admissions != entry.admission) return;  // it gave way meanwhile
  sequence.computed = std::min(entry.first + entry.rows - rejected, sequence.known());
  if (drafts > 0) sequence.scheduled = sequence.computed;
  blocks_.commit(sequence.pages, sequence.tokens, sequence.computed, sequence.request.cache_salt);
}

std::unique_ptr<Sequence> Scheduler::finish(Sequence& sequence) {
  blocks_.release(sequence.pages);
  if (!sequence.running) return leave_waiting(sequence);
  const auto at = std::lower_bound(running_.begin(), running_.end(), sequence, InOrder());
  auto taken    = std::move(*at);
  running_.erase(at);
  return taken;
}

std::vector<Sequence*> Scheduler::sequences() const {
  std::vector<Sequence*> all;
  for (const auto& sequence : running_) all.push_back(sequence.get());
  for (const auto& sequence : waiting_) all.push_back(sequence.get());
  return all;
}

Sequence* Scheduler::victim(const Sequence& sequence, bool equals_too) const {
  if (running_.empty()) return nullptr;
  Sequence* last = running_.back().get();
  if (!sequence.before(*last)) return nullptr;
  return equals_too || last->request.priority > sequence.request.priority ? last : nullptr;
}

void Scheduler::preempt(Sequence& sequence, StepPlan& plan, int64_t& budget) {
  FATHOM_EXPECT(running_.back().get() == &sequence, "who gives way is the last in order");
  const auto mine = [&](const StepEntry& entry) { return entry.sequence == &sequence; };
  for (const StepEntry& entry : plan.entries) {
    if (!mine(entry)) continue;
    budget += entry.rows;
    sequence.drafted -= static_cast<int64_t>(entry.drafts.size());
    sequence.pending -= entry.samples ? 1 : 0;
  }
  std::erase_if(plan.entries, mine);
  blocks_.release(sequence.pages);
  sequence.running  = false;
  sequence.computed = sequence.scheduled = 0;
  ++counters_.preemptions;
  wait(std::move(running_.back()));
  running_.pop_back();
}

}  // namespace fathom::engine
