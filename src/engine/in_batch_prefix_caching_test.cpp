// In-batch prefix caching: prompts with a common prefix that are scheduled together compute it once, and
// nobody reads a block that is not computed after all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/kv_machine.h"
#include "engine/scheduler.h"

namespace fathom::engine {
namespace {

using model::TokenId;
using Tokens = std::vector<TokenId>;

struct Arrival {
  int step = 0;
  Tokens prompt;
  int64_t max_tokens = 1;
  int priority       = 0;
  std::string salt;
  int cancelled_in = -1;  // this step; -1: never
};

struct Workload {
  EngineConfig config;
  BlockManager::Options blocks;
  std::vector<Arrival> arrivals;  // by step
  std::set<int> failing_steps;    // of those that run
  bool pages_enough = true;
};

struct Outcome {
  std::vector<Tokens> answers;
  std::vector<bool> whole;             // neither cancelled nor failed
  int64_t computed_prompt_tokens = 0;  // rows
  int64_t prompt_tokens = 0, hit_tokens = 0, preemptions = 0;
};

// The engine's loop without threads or a model, where no step is launched before the output of the one
// before.
Outcome replay(const Workload& work, bool in_batch) {
  EngineConfig config            = work.config;
  config.in_batch_prefix_caching = in_batch;
  BlockManager blocks(work.blocks);
  Scheduler scheduler(config, blocks);
  KvMachine machine(config, work.blocks);
  const size_t count = work.arrivals.size();
  Outcome outcome{.answers = std::vector<Tokens>(count), .whole = std::vector<bool>(count, true)};
  std::map<RequestId, Sequence*> living;
  std::vector<std::unique_ptr<Sequence>> dead;
  const auto end = [&](Sequence& sequence, bool whole) {
    const auto at       = static_cast<size_t>(sequence.id) - 1;
    outcome.answers[at] = {sequence.output().begin(), sequence.output().end()};
    outcome.whole[at]   = whole;
    living.erase(sequence.id);
    dead.push_back(scheduler.finish(sequence));
  };
  const auto schedule = [&] {
    SchedulerOutput step = scheduler.schedule();
    if (work.pages_enough && config.continuous_batching && config.chunked_prefill) {
      EXPECT_TRUE(scheduler.waiting() == 0 || scheduler.running() == config.max_sequences ||
                  step.rows() == config.step_tokens)
          << "somebody waits for a prefix";
    }
    return step;
  };
  SchedulerOutput in_flight;
  size_t arrived = 0;
  int ran        = 0;
  for (int step = 0; arrived < count || !scheduler.idle() || !in_flight.empty(); ++step) {
    EXPECT_LT(step, 100000) << "some request never ends";
    if (step >= 100000) return outcome;
    for (; arrived < count && work.arrivals[arrived].step <= step; ++arrived) {
      const Arrival& arrival = work.arrivals[arrived];
      Request request;
      request.prompt     = arrival.prompt;
      request.max_tokens = arrival.max_tokens;
      request.priority   = arrival.priority;
      request.cache_salt = arrival.salt;
      auto sequence = std::make_unique<Sequence>(arrived + 1, std::move(request), Listener(), TimePoint());
      living.emplace(sequence->id, sequence.get());
      scheduler.add(std::move(sequence));
    }
    SchedulerOutput next;
    if (config.async_scheduling || in_flight.empty()) next = schedule();
    const bool idle = in_flight.empty();
    if (!idle) {
      const bool fails = work.failing_steps.contains(ran++);
      if (!fails) machine.run(in_flight);
      if (testing::Test::HasFatalFailure()) return outcome;
      for (const ScheduledSequence& scheduled : in_flight.sequences) {
        Sequence& sequence = *scheduled.sequence;
        if (fails) {
          end(sequence, false);
          continue;
        }
        outcome.computed_prompt_tokens +=
            std::clamp<int64_t>(sequence.num_prompt_tokens() - scheduled.first, 0, scheduled.rows);
        Tokens answer;
        if (scheduled.samples) answer.push_back(next_token(sequence.tokens));
        scheduler.commit(scheduled, 0, answer);
        if (sequence.num_output_tokens() >= sequence.request.max_tokens) end(sequence, true);
      }
    }
    for (size_t a = 0; a < arrived; ++a)
      if (work.arrivals[a].cancelled_in == step)
        if (const auto found = living.find(a + 1); found != living.end()) {
          const bool runs_now = idle && !next.empty() && found->second->running;
          if (!runs_now) end(*found->second, false);
        }
    std::erase_if(next.sequences, [&](const auto& row) { return !living.contains(row.sequence->id); });
    scheduler.preempt_holders_of_lost_blocks(next);
    dead.clear();
    if (!config.async_scheduling && !idle) next = schedule();
    if (in_flight.empty() && next.empty()) {
      EXPECT_TRUE(scheduler.idle()) << "requests wait, and nothing runs";
    }
    expect_each_page_is_owned_as_often_as_it_is_held(blocks, scheduler);
    if (testing::Test::HasFatalFailure()) return outcome;
    in_flight = std::move(next);
    machine.execute_model(in_flight);
  }
  EXPECT_EQ(blocks.pages_in_use(), 0);
  EXPECT_EQ(blocks.planned(), 0);
  outcome.prompt_tokens = scheduler.counters().prompt_tokens;
  outcome.hit_tokens    = scheduler.counters().prefix_hit_tokens;
  outcome.preemptions   = scheduler.counters().preemptions;
  return outcome;
}

void expect_right_answers(const Workload& work, const Outcome& outcome) {
  for (size_t a = 0; a < work.arrivals.size(); ++a) {
    Tokens tokens = work.arrivals[a].prompt, expected;
    for (int64_t n = 0; n < work.arrivals[a].max_tokens; ++n) {
      expected.push_back(next_token(tokens));
      tokens.push_back(expected.back());
    }
    if (!outcome.whole[a]) expected.resize(std::min(expected.size(), outcome.answers[a].size()));
    ASSERT_EQ(outcome.answers[a], expected) << "request " << a + 1;
  }
}

// The plain definition: every full block of a prompt is computed once, and so are the tokens behind it.
int64_t fewest_prompt_tokens(const Workload& work) {
  const auto page = static_cast<size_t>(work.config.page_size);
  std::set<std::pair<std::string, Tokens>> seen;
  int64_t computed = 0;
  for (const Arrival& arrival : work.arrivals) {
    const Tokens& prompt = arrival.prompt;
    size_t hit           = 0;
    const auto prefix    = [&](size_t tokens) {
      return std::pair(arrival.salt, Tokens(prompt.begin(), prompt.begin() + static_cast<int64_t>(tokens)));
    };
    while (hit + page < prompt.size() && seen.contains(prefix(hit + page))) hit += page;
    computed += static_cast<int64_t>(prompt.size() - hit);
    for (size_t end = page; end <= prompt.size(); end += page) seen.insert(prefix(end));
  }
  return computed;
}

// Prompts begin like others. No answer has a token of a prompt, so none is another prompt's beginning.
Workload workload(uint64_t seed, bool pressure) {
  std::mt19937_64 random(seed);
  const auto below  = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const auto one_of = [&](std::initializer_list<int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  const auto chance = [&](int percent) { return below(100) < percent; };
  Workload work{.pages_enough = !pressure};
  EngineConfig& c       = work.config;
  c.max_context         = 100;
  c.page_size           = one_of({1, 3, 4, 16});
  c.max_sequences       = one_of({1, 2, 7, 30});
  c.step_tokens         = one_of({1, 2, 5, 13, 64, 300});
  c.continuous_batching = chance(80);
  c.paged_kv            = chance(80);
  c.chunked_prefill     = chance(80);
  c.async_scheduling    = chance(60);
  c.static_batch        = 5;
  if (pressure && chance(30)) c.kv_high_watermark = 0.8, c.kv_low_watermark = 0.5;
  const int64_t needed = (c.max_context + c.page_size - 1) / c.page_size;
  const int64_t window =
      (kWindow8 + c.page_size - 1) / c.page_size + 2 + (c.step_tokens + c.page_size - 1) / c.page_size;
  const int64_t full = pressure ? needed + one_of({0, 1, 10, 60}) : 50 * needed;
  const bool cut     = pressure && c.paged_kv && c.chunked_prefill;
  work.blocks        = {.pages              = {full, cut ? std::min(full, window + one_of({0, 5, 100})) : full},
                        .page_size          = c.page_size,
                        .window             = kWindow8,
                        .free_out_of_window = c.paged_kv,
                        .hash_seed          = seed,
                        .eviction           = static_cast<EvictionPolicy>(seed % 3)};
  std::vector<Tokens> beginnings(12);
  for (Tokens& beginning : beginnings)
    for (int64_t t = below(60); t >= 0; --t) beginning.push_back(static_cast<TokenId>(10 + below(3)));
  const int64_t spread = one_of({5, 40}), burst = one_of({1, 4, 8});
  for (int a = 0, step = 0; a < 60; ++a, step += a % burst == 0 ? static_cast<int>(below(spread)) : 0) {
    Arrival arrival{.step = step, .prompt = beginnings[static_cast<size_t>(a / burst % 12)], .salt = {}};
    if (chance(30)) arrival.prompt.resize(static_cast<size_t>(1 + below(std::ssize(arrival.prompt))));
    for (int64_t t = chance(50) ? 0 : below(30); t > 0; --t)
      arrival.prompt.push_back(static_cast<TokenId>(10 + below(3)));
    arrival.max_tokens = 1 + below(std::min<int64_t>(20, c.max_context - std::ssize(arrival.prompt)));
    arrival.salt       = chance(20) ? "other" : "";
    if (pressure) {
      arrival.priority = static_cast<int>(below(3));
      if (chance(15)) arrival.cancelled_in = step + static_cast<int>(below(12));
    }
    work.arrivals.push_back(std::move(arrival));
  }
  for (int failing = 0; pressure && failing < 200; ++failing)
    if (chance(2)) work.failing_steps.insert(failing);
  return work;
}

// With pages enough, equal priorities and no early end, exactly the distinct blocks are computed.
TEST(InBatchPrefixCaching, ComputesEveryBlockOfPromptsOnce) {
  int64_t on = 0, off = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Workload work  = workload(seed, false);
    const Outcome shared = replay(work, true), alone = replay(work, false);
    if (HasFailure()) return;
    expect_right_answers(work, shared);
    expect_right_answers(work, alone);
    EXPECT_EQ(shared.preemptions, 0);
    EXPECT_EQ(shared.computed_prompt_tokens, fewest_prompt_tokens(work));
    EXPECT_LE(shared.computed_prompt_tokens, alone.computed_prompt_tokens);
    EXPECT_EQ(shared.prompt_tokens - shared.hit_tokens, shared.computed_prompt_tokens) << "what counters say";
    if (HasFailure()) return;
    on += shared.computed_prompt_tokens, off += alone.computed_prompt_tokens;
  }
  EXPECT_LT(on * 100, off * 95) << "the traces have too little in common to show anything";
}

// With few pages, priorities, cancellations and failing steps: who is preempted or ends when depends on how
// fast others run, so only the answers can be equal trace by trace, and the work over all of them.
TEST(InBatchPrefixCaching, AnswersAreTheSameUnderPressure) {
  int64_t on = 0, off = 0, preemptions = 0, ended_early = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Workload work  = workload(seed, true);
    const Outcome shared = replay(work, true), alone = replay(work, false);
    if (HasFailure()) return;
    expect_right_answers(work, shared);
    expect_right_answers(work, alone);
    if (HasFailure()) return;
    on += shared.computed_prompt_tokens, off += alone.computed_prompt_tokens;
    preemptions += shared.preemptions;
    ended_early += std::count(shared.whole.begin(), shared.whole.end(), false);
  }
  EXPECT_LT(on, off);
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(ended_early, 0);
  RecordProperty("computed_on", std::to_string(on));
  RecordProperty("computed_off", std::to_string(off));
}

class InBatch : public testing::Test {
 protected:
  InBatch() : scheduler_({.max_context = 64, .step_tokens = 64}, blocks_) {}

  // The prompt is 0, 1, 2, ..
  void add(RequestId id, int64_t prompt, int priority = 0, const std::string& salt = "") {
    Request request;
    for (TokenId t = 0; t < prompt; ++t) request.prompt.push_back(t);
    request.max_tokens = 4;
    request.priority   = priority;
    request.cache_salt = salt;
    auto sequence      = std::make_unique<Sequence>(id, std::move(request), Listener(), TimePoint());
    sequences_[id]     = sequence.get();
    scheduler_.add(std::move(sequence));
  }
  // Request, first row, rows.
  using Rows = std::vector<std::tuple<RequestId, int64_t, int64_t>>;
  static Rows rows_of(const SchedulerOutput& step) {
    Rows rows;
    for (const ScheduledSequence& scheduled : step.sequences)
      rows.emplace_back(scheduled.sequence->id, scheduled.first, scheduled.rows);
    return rows;
  }
  void answer(const SchedulerOutput& step) {
    for (const ScheduledSequence& scheduled : step.sequences)
      scheduler_.commit(scheduled, 0, scheduled.samples ? Tokens{1000} : Tokens{});
  }

  BlockManager blocks_{{.pages = {40, 40}, .page_size = 4, .window = 8}};
  Scheduler scheduler_;
  std::map<RequestId, Sequence*> sequences_;
};

TEST_F(InBatch, PromptsOfOneStepShareTheirFullBlocks) {
  for (RequestId id = 1; id <= 3; ++id) add(id, 14);
  add(4, 14, 0, "salt");
  add(5, 3);  // less than a block
  const SchedulerOutput step = scheduler_.schedule();
  EXPECT_EQ(rows_of(step), (Rows{{1, 0, 14}, {2, 12, 2}, {3, 12, 2}, {4, 0, 14}, {5, 0, 3}}));
  EXPECT_EQ(scheduler_.counters().prefix_hit_tokens, 24);
  EXPECT_EQ(sequences_[2]->cached_tokens, 12);
  EXPECT_EQ(blocks_.planned(), 6);
  answer(step);
  EXPECT_EQ(blocks_.planned(), 0);
}

// Chunks of 5 rows: the second comes when the first has computed all, and starts where the last block ends.
TEST_F(InBatch, ALaterChunkIsFoundWhileItIsInFlight) {
  scheduler_.set({.draft_tokens = 0, .step_tokens = 5});
  add(1, 13), add(2, 13);
  EXPECT_EQ(rows_of(scheduler_.schedule()), (Rows{{1, 0, 5}}));
  EXPECT_EQ(rows_of(scheduler_.schedule()), (Rows{{1, 5, 5}}));
  EXPECT_EQ(rows_of(scheduler_.schedule()), (Rows{{1, 10, 3}, {2, 12, 1}}));
}

// A less urgent sequence may be preempted before the step is launched.
TEST_F(InBatch, NobodyReliesOnALessUrgentSequence) {
  add(1, 14, 1);
  scheduler_.set({.draft_tokens = 0, .step_tokens = 8});
  answer(scheduler_.schedule());
  scheduler_.set({.draft_tokens = 0, .step_tokens = 64});
  add(2, 14, 0), add(3, 14, 0), add(4, 14, 2);
  EXPECT_EQ(rows_of(scheduler_.schedule()), (Rows{{1, 8, 6}, {2, 8, 6}, {3, 8, 6}, {4, 12, 2}}));
}

TEST_F(InBatch, WhoHoldsBlocksThatAreLostStartsAnew) {
  add(1, 14), add(2, 14);
  SchedulerOutput step = scheduler_.schedule();
  add(3, 13);
  SchedulerOutput next = scheduler_.schedule();
  EXPECT_EQ(rows_of(next), (Rows{{1, 14, 1}, {2, 14, 1}, {3, 12, 1}}));
  answer(step);
  // The first is cancelled before the next step is launched, but its prompt is computed.
  const auto first = scheduler_.finish(*sequences_[1]);
  std::erase_if(next.sequences, [&](const auto& scheduled) { return scheduled.sequence == first.get(); });
  scheduler_.preempt_holders_of_lost_blocks(next);
  EXPECT_EQ(rows_of(next), (Rows{{2, 14, 1}, {3, 12, 1}}));
  answer(next);

  add(4, 30), add(5, 30), add(6, 5);
  step = scheduler_.schedule();
  ASSERT_EQ(rows_of(step), (Rows{{2, 15, 1}, {3, 13, 1}, {4, 12, 18}, {5, 28, 2}, {6, 4, 1}}));
  const auto fourth = scheduler_.finish(*sequences_[4]);  // not launched
  std::erase_if(step.sequences, [&](const auto& scheduled) { return scheduled.sequence == fourth.get(); });
  scheduler_.preempt_holders_of_lost_blocks(step);
  EXPECT_EQ(rows_of(step), (Rows{{2, 15, 1}, {3, 13, 1}, {6, 4, 1}})) << "all found of 6 was computed";
  EXPECT_EQ(blocks_.planned(), 0);
  answer(step);
  EXPECT_EQ(rows_of(scheduler_.schedule()), (Rows{{2, 16, 1}, {3, 14, 1}, {6, 5, 1}, {5, 12, 18}}));
}

// Whoever computes a block may go when its step is launched: the holder caches it.
TEST_F(InBatch, AHolderCachesTheBlocksOfASequenceThatIsGone) {
  add(1, 14), add(2, 14);
  const SchedulerOutput step = scheduler_.schedule();
  const auto first           = scheduler_.finish(*sequences_[1]);  // its rows run
  scheduler_.commit(step.sequences[1], 0, Tokens{1000});
  Tokens prompt(14);
  for (TokenId t = 0; t < 14; ++t) prompt[static_cast<size_t>(t)] = t;
  EXPECT_EQ(blocks_.cached_prefix(prompt, ""), 12);
}

TEST_F(InBatch, AHolderThatIsGoneTakesNoPlanWithIt) {
  add(1, 14), add(2, 14);
  const SchedulerOutput step = scheduler_.schedule();
  const auto second          = scheduler_.finish(*sequences_[2]);
  add(3, 13);
  EXPECT_EQ(rows_of(scheduler_.schedule()), (Rows{{1, 14, 1}, {3, 12, 1}}));
}

TEST_F(InBatch, AWindowIsFoundWithItsPages) {
  add(1, 32), add(2, 32);
  const SchedulerOutput step = scheduler_.schedule();
  EXPECT_EQ(rows_of(step), (Rows{{1, 0, 32}, {2, 28, 4}}));
  const BlockTable& window = sequences_[2]->pages.block_tables[kWindow];
  EXPECT_EQ(window.first, 5);  // position 28 attends to positions 21 to 28
  EXPECT_EQ(window.pages[4], -1);
  EXPECT_EQ(window.pages[5], sequences_[1]->pages.block_tables[kWindow].pages[5]);
  answer(step);
  EXPECT_EQ(blocks_.pool(kFull).pages() - blocks_.pool(kFull).free_pages(), 9);  // 8 of the first, 1 more
}

}  // namespace
}  // namespace fathom::engine
