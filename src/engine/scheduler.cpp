#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/expect.h"

namespace fathom::engine {

Scheduler::Scheduler(const EngineConfig& config, BlockManager& blocks)
    : config_(config),
      blocks_(blocks),
      own_proposer_(make_proposer(config)),
      proposer_(own_proposer_.get()),
      draft_budget_(config.draft_tokens),
      pressure_(config.kv_high_watermark, config.kv_low_watermark) {}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  sequence->draft_tokens = config_.draft_tokens;
  wait(std::move(sequence));
}

void Scheduler::set(const SchedulerSetting& setting) {
  config_.draft_tokens = setting.draft_tokens;
  config_.step_tokens  = setting.step_tokens;
  for (Sequence* sequence : sequences()) sequence->draft_tokens = setting.draft_tokens;
}

void Scheduler::wait(std::unique_ptr<Sequence> sequence) {
  waiting_tokens_ += sequence->num_prompt_tokens();
  waiting_.insert(std::move(sequence));
}

std::unique_ptr<Sequence> Scheduler::leave_waiting(Sequence& sequence) {
  const auto at = waiting_.find(sequence);
  FATHOM_EXPECT(at != waiting_.end(), "the scheduler does not have this sequence");
  waiting_tokens_ -= sequence.num_prompt_tokens();
  return std::move(waiting_.extract(at).value());
}

SchedulerOutput Scheduler::schedule() {
  lost_blocks_ = false;  // or their step was launched before, and computed them
  SchedulerOutput step;
  step.sequences.reserve(running_.size() + 8);
  int64_t budget = config_.chunked_prefill ? config_.step_tokens : std::numeric_limits<int64_t>::max();
  schedule_decodes(step, budget);
  schedule_prefills(step, budget);
  admit(step, budget);
  // Prompts that wait for each other's pages: preempt the last one.
  while (step.empty() && running_.size() > 1) {
    Sequence& last = *running_.back();
    if (last.num_output_placeholders > 0 || last.num_unscheduled_tokens() == 0)
      break;  // its step is in flight
    preempt(last, step, budget);
    schedule_decodes(step, budget);
    schedule_prefills(step, budget);
  }
  return step;
}

// Whether the next row of a running sequence is that of its newest token.
bool Scheduler::decodes(const Sequence& sequence) {
  return sequence.num_unscheduled_tokens() == 1 &&
         sequence.num_scheduled_tokens >= sequence.num_prompt_tokens();
}

// Tokens of a draft in the next step. Lengths are chosen for steps without prompts only: their costs are
// known.
int64_t Scheduler::draft_length() const {
  if (!proposer_ || config_.draft_tokens == 0) return 0;
  if (!config_.draft_budget) return running() <= config_.draft_sequences ? config_.draft_tokens : 0;
  if (!waiting_.empty() && running() < config_.max_sequences) return 0;
  for (const auto& sequence : running_)
    if (sequence->num_scheduled_tokens + 1 < sequence->num_tokens()) return 0;
  return draft_budget_.draft_length(running());
}

bool Scheduler::may_draft() const { return draft_length() > 0; }

// A draft for each running sequence, empty where it can't have one; none at all in a step without drafts.
std::vector<Draft> Scheduler::drafts_of_running(SchedulerOutput& step) {
  const int64_t length = draft_length();
  if (length == 0) return {};
  std::vector<Draft> drafts(running_.size());
  for (size_t r = 0; r < running_.size(); ++r) {
    const Sequence& sequence = *running_[r];
    if (!decodes(sequence) || sequence.num_output_placeholders > 0) continue;
    step.asked_for_drafts = true;
    // The step yields one token besides the accepted drafts.
    const int64_t most = std::min({config_.draft_budget ? length : sequence.draft_tokens,
                                   sequence.request.max_tokens - sequence.num_output_tokens() - 1,
                                   config_.max_context - sequence.num_tokens()});
    if (most > 0) drafts[r] = proposer_->propose(sequence, most);
  }
  if (!config_.draft_budget || !step.asked_for_drafts) return drafts;
  const auto lengths = draft_budget_.choose(drafts, config_.draft_sequences * config_.draft_tokens);
  for (size_t r = 0; r < drafts.size(); ++r) drafts[r].truncate(lengths[r]);
  return drafts;
}

// The next token of every running sequence whose prompt is computed, with drafts.
void Scheduler::schedule_decodes(SchedulerOutput& step, int64_t& budget) {
  std::vector<Draft> drafts_of = drafts_of_running(step);
  for (size_t r = 0; r < running_.size() && budget > 0; ++r) {
    Sequence& sequence = *running_[r];
    if (!decodes(sequence)) continue;
    Draft draft;
    if (r < drafts_of.size()) draft = std::move(drafts_of[r]);
    draft.truncate(budget - 1);
    if (draft.size() > 0 &&
        !blocks_.can_allocate(sequence.pages, sequence.num_scheduled_tokens + 1 + draft.size()))
      draft = {};
    const int64_t drafts = draft.size();
    while (!allocate(sequence, sequence.num_scheduled_tokens + 1 + drafts)) {
      Sequence* last = victim(sequence, true);
      if (!last) last = &sequence;
      const bool itself = last == &sequence;
      preempt(*last, step, budget);
      if (itself) break;
    }
    if (!sequence.running) break;  // it preempted itself, after all sequences behind it
    step.sequences.push_back({.sequence   = &sequence,
                              .first      = sequence.num_scheduled_tokens,
                              .rows       = 1 + drafts,
                              .drafts     = std::move(draft.tokens),
                              .samples    = true,
                              .admission  = sequence.admissions,
                              .confidence = std::move(draft.confidence)});
    sequence.num_scheduled_tokens += 1 + drafts;
    ++sequence.num_output_placeholders;
    sequence.drafted += drafts;
    budget -= 1 + drafts;
  }
}

void Scheduler::schedule_prefills(SchedulerOutput& step, int64_t& budget) {
  for (size_t r = 0; r < running_.size() && budget > 0; ++r) {
    Sequence& sequence = *running_[r];
    const int64_t rows = sequence.num_unscheduled_tokens();
    if (rows == 0 || (rows == 1 && sequence.num_scheduled_tokens >= sequence.num_prompt_tokens())) continue;
    schedule_chunk(sequence, step, budget);
  }
}

// Schedules as many tokens of the sequence as budget and pages allow.
void Scheduler::schedule_chunk(Sequence& sequence, SchedulerOutput& step, int64_t& budget) {
  int64_t rows = std::min(sequence.num_unscheduled_tokens(), budget);
  while (!allocate(sequence, sequence.num_scheduled_tokens + rows)) {
    if (Sequence* last = victim(sequence, false)) {
      preempt(*last, step, budget);
      continue;
    }
    rows = blocks_.max_allocatable(sequence.pages) - sequence.num_scheduled_tokens;
    if (rows <= 0 || !config_.paged_kv) return;
  }
  const bool whole = rows == sequence.num_unscheduled_tokens();
  step.sequences.push_back({.sequence           = &sequence,
                            .first              = sequence.num_scheduled_tokens,
                            .rows               = rows,
                            .samples            = whole,
                            .admission          = sequence.admissions,
                            .reads_rows_of_step = sequence.pages.holds_planned});
  sequence.num_scheduled_tokens += rows;
  sequence.num_output_placeholders += whole ? 1 : 0;
  budget -= rows;
  if (config_.in_batch_prefix_caching)
    blocks_.plan(sequence.pages, sequence.tokens, sequence.num_scheduled_tokens, sequence.request.cache_salt,
                 sequence.order());
}

bool Scheduler::allocate(Sequence& sequence, int64_t end) {
  return blocks_.allocate(sequence.pages, config_.paged_kv ? end : config_.max_context);
}

// Pages that running sequences hold, and those that their known tokens will take.
int64_t Scheduler::claimed_pages() const {
  const BlockPool& pool = blocks_.pool(kFull);
  int64_t claimed       = pool.pages() - pool.free_pages();
  for (const auto& sequence : running_)
    claimed += std::max<int64_t>(blocks_.blocks(sequence->num_tokens()) -
                                     static_cast<int64_t>(sequence->pages.block_tables[kFull].pages.size()),
                                 0);
  return claimed;
}

void Scheduler::admit(SchedulerOutput& step, int64_t& budget) {
  if (!config_.continuous_batching && !running_.empty()) return;
  const int64_t max_running = config_.continuous_batching
                                  ? config_.max_sequences
                                  : std::min(config_.max_sequences, config_.static_batch);
  while (budget > 0) {
    Sequence* first = next_waiting();
    if (!first) return;
    while (running() >= max_running) {
      Sequence* last = victim(*first, false);
      if (!last) return;
      preempt(*last, step, budget);
    }
    if (!admit(*first, step, budget)) return;
  }
}

// The first in order that may be admitted; null: none.
Sequence* Scheduler::next_waiting() const {
  const auto may = [&](const auto& sequence) { return !held_ || sequence->admissions > 0; };
  const auto at  = std::find_if(waiting_.begin(), waiting_.end(), may);
  return at == waiting_.end() ? nullptr : at->get();
}

bool Scheduler::admit(Sequence& sequence, SchedulerOutput& step, int64_t& budget) {
  const int64_t claimed = pressure_.watched() ? claimed_pages() : 0;
  const int64_t hit =
      blocks_.match_prefix(sequence.pages, sequence.tokens, sequence.request.cache_salt, sequence.order());
  // A prompt that does not fit as a whole would only preempt others or stall halfway.
  const int64_t end = config_.paged_kv ? sequence.num_tokens() : config_.max_context;
  // More urgent sequences pass: they may preempt.
  if (pressure_.watched() && !running_.empty() && !victim(sequence, false)) {
    const auto own = static_cast<int64_t>(sequence.pages.block_tables[kFull].pages.size());
    if (!pressure_.admits(claimed, claimed_pages() + blocks_.blocks(end) - own,
                          blocks_.pool(kFull).pages())) {
      blocks_.free(sequence.pages);
      ++counters_.held_steps;
      return false;
    }
  }
  while (!blocks_.can_hold(sequence.pages, end)) {
    Sequence* last = victim(sequence, false);
    if (!last) {
      blocks_.free(sequence.pages);
      return false;
    }
    preempt(*last, step, budget);
  }
  const auto place = std::upper_bound(running_.begin(), running_.end(), sequence, InOrder());
  running_.insert(place, leave_waiting(sequence));
  sequence.running             = true;
  sequence.num_computed_tokens = sequence.num_scheduled_tokens = hit;
  if (sequence.admissions++ == 0) {
    sequence.cached_tokens = std::min(hit, sequence.num_prompt_tokens());
    counters_.prompt_tokens += sequence.num_prompt_tokens();
    counters_.prefix_queried_tokens += config_.prefix_cache ? sequence.num_prompt_tokens() : 0;
    counters_.prefix_hit_tokens += sequence.cached_tokens;
    counters_.received_hit_tokens += std::min(sequence.cached_tokens, sequence.request.received_tokens);
  }
  schedule_chunk(sequence, step, budget);
  return true;
}

void Scheduler::commit(const ScheduledSequence& scheduled, int64_t rejected,
                       std::span<const model::TokenId> tokens) {
  Sequence& sequence = *scheduled.sequence;
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  if (scheduled.samples) --sequence.num_output_placeholders;
  const auto drafts = static_cast<int64_t>(scheduled.drafts.size());
  if (drafts > 0) {
    draft_budget_.verified(scheduled.confidence, drafts - rejected);
    // N-grams of fixed lengths: the next draft is twice as long if all drafts were accepted, else one longer
    // than the accepted part. Other proposers end a draft themselves where it becomes unlikely.
    const int64_t accepted = drafts - rejected;
    sequence.accepted += accepted;
    if (config_.draft_method == EngineConfig::DraftMethod::ngram)
      sequence.draft_tokens =
          rejected == 0 ? std::min(2 * sequence.draft_tokens, config_.draft_tokens) : accepted + 1;
  }
  if (!sequence.running || sequence.admissions != scheduled.admission) return;  // preempted meanwhile
  sequence.num_computed_tokens = std::min(scheduled.first + scheduled.rows - rejected, sequence.num_tokens());
  if (drafts > 0) sequence.num_scheduled_tokens = sequence.num_computed_tokens;
  blocks_.commit(sequence.pages, sequence.tokens, sequence.num_computed_tokens, sequence.request.cache_salt);
}

void Scheduler::took(const SchedulerOutput& step, int64_t accepted, double seconds) {
  int64_t drafted = 0;
  for (const ScheduledSequence& scheduled : step.sequences) drafted += std::ssize(scheduled.drafts);
  draft_budget_.took({.sequences = std::ssize(step.sequences),
                      .asked     = step.asked_for_drafts,
                      .drafted   = drafted,
                      .accepted  = accepted,
                      .seconds   = seconds});
}

std::unique_ptr<Sequence> Scheduler::finish(Sequence& sequence) {
  if (proposer_) proposer_->finished(sequence);
  lost_blocks_ = lost_blocks_ || sequence.pages.planned > sequence.pages.committed;
  blocks_.free(sequence.pages);
  return sequence.running ? leave_running(sequence) : leave_waiting(sequence);
}

std::unique_ptr<Sequence> Scheduler::leave_running(Sequence& sequence) {
  const auto at = std::lower_bound(running_.begin(), running_.end(), sequence, InOrder());
  auto taken    = std::move(*at);
  running_.erase(at);
  return taken;
}

// Rare, so it does not matter that some of them hold blocks of others only.
void Scheduler::preempt_holders_of_lost_blocks(SchedulerOutput& step) {
  if (!std::exchange(lost_blocks_, false)) return;
  int64_t budget = 0;
  for (size_t r = running_.size(); r-- > 0;)
    if (running_[r]->pages.holds_planned) preempt(*running_[r], step, budget);
}

std::vector<Sequence*> Scheduler::begun() const {
  std::vector<Sequence*> all = sequences();
  std::erase_if(all, [](const Sequence* sequence) { return sequence->admissions == 0; });
  return all;
}

void Scheduler::retract() {
  SchedulerOutput none;
  int64_t budget = 0;
  while (!running_.empty()) preempt(*running_.back(), none, budget);
}

void Scheduler::reset_prefix_cache() {
  blocks_.reset_prefix_cache();
  for (const auto& sequence : running_) sequence->pages.uncacheable = true;
}

std::vector<Sequence*> Scheduler::sequences() const {
  std::vector<Sequence*> all;
  for (const auto& sequence : running_) all.push_back(sequence.get());
  for (const auto& sequence : waiting_) all.push_back(sequence.get());
  return all;
}

Sequence* Scheduler::victim(const Sequence& sequence, bool equal_priority_too) const {
  if (running_.empty()) return nullptr;
  Sequence* last = running_.back().get();
  if (!sequence.before(*last)) return nullptr;
  return equal_priority_too || last->request.priority > sequence.request.priority ? last : nullptr;
}

void Scheduler::preempt(Sequence& sequence, SchedulerOutput& step, int64_t& budget) {
  const auto is_of_sequence = [&](const ScheduledSequence& scheduled) {
    return scheduled.sequence == &sequence;
  };
  for (const ScheduledSequence& scheduled : step.sequences) {
    if (!is_of_sequence(scheduled)) continue;
    budget += scheduled.rows;
    sequence.drafted -= static_cast<int64_t>(scheduled.drafts.size());
    sequence.num_output_placeholders -= scheduled.samples ? 1 : 0;
  }
  std::erase_if(step.sequences, is_of_sequence);
  blocks_.free(sequence.pages);
  sequence.running             = false;
  sequence.num_computed_tokens = sequence.num_scheduled_tokens = 0;
  ++counters_.preemptions;
  wait(leave_running(sequence));
}

}  // namespace fathom::engine
