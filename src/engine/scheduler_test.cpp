#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/kv_machine.h"

namespace fathom::engine {
namespace {

using model::TokenId;

struct Trace {
  EngineConfig config;
  BlockManager::Options blocks;
  uint64_t seed = 0;
  bool tuned    = false;  // the setting changes between steps
};

// The engine's loop without threads or a model, with random arrivals, lengths, priorities, salts and
// cancellations.
void replay(const Trace& trace, int64_t& accepted_by_budget) {
  std::mt19937_64 random(trace.seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const EngineConfig& config = trace.config;
  BlockManager blocks(trace.blocks);
  Scheduler scheduler(config, blocks);
  KvMachine machine(config, trace.blocks);
  std::vector<std::vector<TokenId>> beginnings(3);
  for (auto& beginning : beginnings)
    for (int64_t t = below(40); t >= 0; --t) beginning.push_back(static_cast<TokenId>(below(4)));

  constexpr int kRequests = 60;
  int arrived = 0, ended = 0;
  std::map<RequestId, Sequence*> living;
  std::map<int, RequestId> last_started;  // by priority
  SchedulerOutput in_flight;
  std::vector<std::unique_ptr<Sequence>> dead;
  const auto end = [&](Sequence& sequence) {
    living.erase(sequence.id);
    dead.push_back(scheduler.finish(sequence));
    ++ended;
  };
  for (int step = 0; arrived < kRequests || !scheduler.idle() || !in_flight.empty(); ++step) {
    ASSERT_LT(step, 100000) << "some request never ends";
    for (int64_t n = arrived < kRequests ? below(3) : 0; n > 0 && arrived < kRequests; --n) {
      Request request;
      request.prompt = beginnings[static_cast<size_t>(below(3))];
      for (int64_t t = below(30); t >= 0; --t) request.prompt.push_back(static_cast<TokenId>(below(4)));
      request.max_tokens = 1 + below(config.max_context - static_cast<int64_t>(request.prompt.size()));
      request.priority   = static_cast<int>(below(3));
      request.cache_salt = below(4) == 0 ? "other" : "";
      auto sequence      = std::make_unique<Sequence>(static_cast<RequestId>(++arrived), std::move(request),
                                                 Listener(), TimePoint());
      living.emplace(sequence->id, sequence.get());
      scheduler.add(std::move(sequence));
    }
    SchedulerOutput next;
    const bool ahead = config.async_scheduling && !scheduler.may_draft();
    if (ahead || in_flight.empty()) next = scheduler.schedule();
    if (!in_flight.empty()) {
      machine.run(in_flight);
      if (testing::Test::HasFatalFailure()) return;
      // A row costs a tenth of a step.
      const double seconds = 1e-3 * (1 + 0.1 * static_cast<double>(in_flight.rows()));
      int64_t all_accepted = 0;
      for (const ScheduledSequence& scheduled : in_flight.sequences) {
        Sequence& sequence = *scheduled.sequence;
        std::vector<TokenId> answer;
        int64_t rejected = 0;
        if (scheduled.samples) {
          std::vector<TokenId> tokens = sequence.tokens;
          for (size_t d = 0;; ++d) {
            answer.push_back(next_token(tokens));
            tokens.push_back(answer.back());
            rejected = static_cast<int64_t>(scheduled.drafts.size() - d);
            if (d == scheduled.drafts.size() || answer.back() != scheduled.drafts[d]) break;
          }
        }
        all_accepted += std::ssize(scheduled.drafts) - rejected;
        scheduler.commit(scheduled, rejected, answer);
        if (sequence.num_output_tokens() >= sequence.request.max_tokens ||
            (scheduled.samples && below(60) == 0))
          end(sequence);
      }
      accepted_by_budget += config.draft_budget ? all_accepted : 0;
      scheduler.took(in_flight, all_accepted, seconds);
      if (!living.empty() && below(20) == 0)
        end(*std::next(living.begin(), below(static_cast<int64_t>(living.size())))->second);
      std::erase_if(next.sequences,
                    [&](const ScheduledSequence& e) { return !living.contains(e.sequence->id); });
      scheduler.preempt_holders_of_lost_blocks(next);
      dead.clear();
      if (trace.tuned && below(4) == 0)
        scheduler.set(
            {.draft_tokens = below(2) * config.draft_tokens, .step_tokens = 1 + below(config.step_tokens)});
      if (!ahead) next = scheduler.schedule();
    } else if (next.empty()) {
      ASSERT_TRUE(scheduler.idle()) << "requests wait, and nothing runs";
    }
    for (const ScheduledSequence& scheduled : next.sequences) {
      const Sequence& sequence = *scheduled.sequence;
      ASSERT_LE(scheduled.first + scheduled.rows - static_cast<int64_t>(scheduled.drafts.size()),
                sequence.num_tokens())
          << "rows of tokens that nobody knows yet";
      ASSERT_LE(scheduled.first + scheduled.rows, config.max_context);
      if (sequence.admissions == 1 && sequence.num_computed_tokens == sequence.cached_tokens &&
          scheduled.first == sequence.num_computed_tokens) {
        RequestId& last = last_started[sequence.request.priority];
        ASSERT_GE(sequence.id, last) << "a later request of the same priority started first";
        last = sequence.id;
      }
    }
    if (config.chunked_prefill) {
      ASSERT_LE(next.rows(), config.step_tokens);
    }
    ASSERT_LE(scheduler.running(), config.continuous_batching ? config.max_sequences : config.static_batch);
    expect_each_page_is_owned_as_often_as_it_is_held(blocks, scheduler);
    if (testing::Test::HasFatalFailure()) return;
    in_flight = std::move(next);
    machine.execute_model(in_flight);
  }
  EXPECT_EQ(ended, kRequests);
  EXPECT_EQ(blocks.pages_in_use(), 0);
  EXPECT_EQ(blocks.planned(), 0);
}

Trace trace_of(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](std::initializer_list<int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  const auto chance = [&](int percent) { return random() % 100 < static_cast<uint64_t>(percent); };
  EngineConfig c;
  c.max_context             = 100;
  c.page_size               = one_of({1, 3, 4, 16});
  c.max_sequences           = one_of({1, 2, 7, 30});
  c.step_tokens             = one_of({1, 2, 5, 13, 64});
  c.continuous_batching     = chance(80);
  c.paged_kv                = chance(80);
  c.prefix_cache            = chance(80);
  c.in_batch_prefix_caching = chance(80);
  c.chunked_prefill         = chance(80);
  c.async_scheduling        = chance(50);
  c.draft_tokens            = one_of({0, 0, 1, 3, 8});
  c.draft_sequences         = one_of({1, 4, 30});
  if (chance(40)) {
    c.kv_high_watermark = 0.01 * static_cast<double>(one_of({1, 50, 85, 99}));
    c.kv_low_watermark  = c.kv_high_watermark * (chance(50) ? 1 : 0.8);
  }
  c.draft_method       = chance(50) ? EngineConfig::DraftMethod::ngram : EngineConfig::DraftMethod::suffix;
  c.draft_budget       = chance(50);
  const int64_t needed = (c.max_context + c.page_size - 1) / c.page_size;
  const int64_t full   = needed + one_of({0, 1, 10, 200});
  const int64_t window = (kWindow8 + c.page_size - 1) / c.page_size + 2;
  const bool cut       = c.paged_kv && c.chunked_prefill;
  return {.config = c,
          .blocks = {.pages              = {full, cut ? std::min(full, window + one_of({0, 5, 100})) : full},
                     .page_size          = c.page_size,
                     .window             = kWindow8,
                     .prefix_cache       = c.prefix_cache,
                     .free_out_of_window = c.paged_kv,
                     .hash_seed          = seed,
                     .eviction           = static_cast<EvictionPolicy>(seed % 3)},
          .seed   = seed,
          .tuned  = chance(30)};
}

TEST(Scheduler, KeepsItsInvariantsUnderRandomLoad) {
  int64_t accepted_by_budget = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    replay(trace_of(seed), accepted_by_budget);
    if (HasFailure()) return;
  }
  EXPECT_GT(accepted_by_budget, 0);
}

std::unique_ptr<Sequence> sequence_of(RequestId id, int64_t prompt, int64_t max_tokens, int priority = 0) {
  Request request;
  for (int64_t t = 0; t < prompt; ++t)
    request.prompt.push_back(static_cast<TokenId>(id * 100 + static_cast<RequestId>(t)));
  request.max_tokens = max_tokens;
  request.priority   = priority;
  return std::make_unique<Sequence>(id, std::move(request), Listener(), TimePoint());
}

std::vector<std::pair<RequestId, int64_t>> rows_of(const SchedulerOutput& step) {
  std::vector<std::pair<RequestId, int64_t>> rows;
  for (const ScheduledSequence& scheduled : step.sequences)
    rows.emplace_back(scheduled.sequence->id, scheduled.rows);
  return rows;
}

void answer_all(Scheduler& scheduler, const SchedulerOutput& step) {
  for (const ScheduledSequence& scheduled : step.sequences)
    scheduler.commit(scheduled, 0, scheduled.samples ? std::vector<TokenId>{1} : std::vector<TokenId>{});
}

using Rows = std::vector<std::pair<RequestId, int64_t>>;

TEST(Scheduler, DecodesGoFirstAndPrefillsShareTheRest) {
  BlockManager blocks({.pages = {100, 0}, .page_size = 4});
  Scheduler scheduler({.max_sequences = 3, .step_tokens = 10}, blocks);
  for (RequestId id = 1; id <= 4; ++id) scheduler.add(sequence_of(id, 8, 4));
  SchedulerOutput step = scheduler.schedule();
  EXPECT_EQ(rows_of(step), (Rows{{1, 8}, {2, 2}}));
  answer_all(scheduler, step);
  step = scheduler.schedule();
  EXPECT_EQ(rows_of(step), (Rows{{1, 1}, {2, 6}, {3, 3}}));  // max_sequences is 3
  EXPECT_EQ(scheduler.waiting_tokens(), 8);
}

TEST(Scheduler, SchedulesPlaceholdersAhead) {
  BlockManager blocks({.pages = {100, 0}, .page_size = 4});
  Scheduler scheduler({.step_tokens = 10}, blocks);
  scheduler.add(sequence_of(1, 3, 2));
  const SchedulerOutput prompt = scheduler.schedule(), second = scheduler.schedule();
  EXPECT_EQ(rows_of(second), (Rows{{1, 1}}));
  EXPECT_EQ(second.sequences[0].first, 3);
  EXPECT_TRUE(scheduler.schedule().empty());  // max_tokens is 2
}

TEST(Scheduler, HigherPriorityPreemptsTheLastOfLowerPriority) {
  BlockManager blocks({.pages = {6, 0}, .page_size = 4, .prefix_cache = false});
  Scheduler scheduler({.max_context = 24, .step_tokens = 64}, blocks);
  scheduler.add(sequence_of(1, 8, 8, 1));
  scheduler.add(sequence_of(2, 8, 8, 1));
  SchedulerOutput step = scheduler.schedule();
  answer_all(scheduler, step);
  scheduler.add(sequence_of(3, 8, 8, 0));
  step = scheduler.schedule();
  EXPECT_EQ(rows_of(step), (Rows{{1, 1}, {3, 8}}));
  EXPECT_EQ(scheduler.counters().preemptions, 1);
  EXPECT_EQ(scheduler.waiting(), 1);
  answer_all(scheduler, step);
  EXPECT_EQ(rows_of(scheduler.schedule()), (Rows{{3, 1}, {1, 1}}));
}

TEST(MemoryPressure, KeepsItsStateBetweenTheWatermarks) {
  MemoryPressure pressure(0.8, 0.5);
  EXPECT_TRUE(pressure.admits(0, 80, 100));  // up to the high watermark
  EXPECT_FALSE(pressure.admits(80, 81, 100));
  EXPECT_FALSE(pressure.admits(51, 52, 100));  // it would fit, but the low watermark is not reached
  EXPECT_EQ(pressure.holds(), 1);
  EXPECT_FALSE(pressure.admits(50, 90, 100));  // reached, but this one is too large
  EXPECT_EQ(pressure.holds(), 1) << "it was closed all the time";
  EXPECT_TRUE(pressure.admits(50, 60, 100));
  EXPECT_TRUE(pressure.admits(60, 70, 100));
  EXPECT_FALSE(pressure.admits(70, 90, 100));
  EXPECT_EQ(pressure.holds(), 2);
  EXPECT_FALSE(MemoryPressure(1, 0.7).watched());
}

// Ten pages of four tokens; prompts of two pages, answers of two more.
TEST(Scheduler, AdmissionClosesBeforePagesRunOut) {
  const auto played = [](double high, double low) {
    BlockManager blocks({.pages = {10, 0}, .page_size = 4, .prefix_cache = false});
    EngineConfig config{.max_context = 16, .step_tokens = 64};
    config.kv_high_watermark = high, config.kv_low_watermark = low;
    Scheduler scheduler(config, blocks);
    for (RequestId id = 1; id <= 6; ++id) scheduler.add(sequence_of(id, 8, 8));
    int64_t most = 0, rows = 0;
    for (int steps = 0; !scheduler.idle(); ++steps) {
      EXPECT_LT(steps, 1000);
      const SchedulerOutput step = scheduler.schedule();
      rows += step.rows();
      most = std::max(most, scheduler.running());
      answer_all(scheduler, step);
      for (const ScheduledSequence& scheduled : step.sequences)
        if (scheduled.sequence->num_output_tokens() == 8) scheduler.finish(*scheduled.sequence);
    }
    return std::tuple(scheduler.counters().preemptions, most, rows, scheduler.admission_holds());
  };
  const auto [open, most_open, rows_open, never] = played(1, 1);
  EXPECT_GT(open, 0) << "five prompts take all pages, and no answer has room";
  EXPECT_EQ(most_open, 5);
  EXPECT_GT(rows_open, 90) << "some are computed again";
  EXPECT_EQ(never, 0);
  const auto [held, most_held, rows_held, holds] = played(0.4, 0.4);
  EXPECT_EQ(held, 0) << "two sequences fit, answers and all";
  EXPECT_EQ(most_held, 2);
  EXPECT_EQ(rows_held, 90);
  EXPECT_GT(holds, 0);
}

TEST(Scheduler, UrgentRequestsPassTheClosedGate) {
  BlockManager blocks({.pages = {10, 0}, .page_size = 4, .prefix_cache = false});
  EngineConfig config{.max_context = 16, .step_tokens = 64};
  config.kv_high_watermark = 0.2, config.kv_low_watermark = 0.2;
  Scheduler scheduler(config, blocks);
  scheduler.add(sequence_of(1, 8, 8, 1));
  scheduler.add(sequence_of(2, 8, 8, 1));
  answer_all(scheduler, scheduler.schedule());
  EXPECT_EQ(scheduler.running(), 1);
  scheduler.add(sequence_of(3, 8, 8, 0));
  answer_all(scheduler, scheduler.schedule());
  EXPECT_EQ(scheduler.running(), 2);
  EXPECT_EQ(scheduler.waiting(), 1) << "the patient one still waits";
  EXPECT_EQ(scheduler.counters().held_steps, 2);
}

TEST(Scheduler, StaticBatchesWaitForTheWholeBatch) {
  BlockManager blocks({.pages = {100, 0}, .page_size = 4});
  EngineConfig config = EngineConfig::baseline();
  config.max_context = 16, config.static_batch = 2;
  Scheduler scheduler(config, blocks);
  for (RequestId id = 1; id <= 3; ++id) scheduler.add(sequence_of(id, 8, static_cast<int64_t>(id)));
  const SchedulerOutput first = scheduler.schedule();
  EXPECT_EQ(rows_of(first), (Rows{{1, 8}, {2, 8}}));
  EXPECT_EQ(blocks.pages_in_use(), 2 * 4);  // whole contexts
  answer_all(scheduler, first);
  scheduler.finish(*first.sequences[0].sequence);
  EXPECT_EQ(rows_of(scheduler.schedule()), (Rows{{2, 1}}));  // the third waits for the second
}

// For an update of the weights: who has begun ends, preempted ones too, and nobody else begins.
TEST(Scheduler, HeldAdmissionLetsOnlyThoseRunThatHaveBegun) {
  BlockManager blocks({.pages = {6, 0}, .page_size = 4, .prefix_cache = false});
  EngineConfig config{.max_context = 24, .step_tokens = 64};
  Scheduler scheduler(config, blocks);
  scheduler.add(sequence_of(1, 8, 12));
  scheduler.add(sequence_of(2, 8, 12));
  answer_all(scheduler, scheduler.schedule());
  scheduler.add(sequence_of(3, 4, 4));
  scheduler.add(sequence_of(4, 4, 4, -1));  // urgent
  scheduler.hold_admission(true);
  int64_t preempted = 0;
  for (int steps = 0; !scheduler.begun().empty(); ++steps) {
    ASSERT_LT(steps, 100);
    const SchedulerOutput step = scheduler.schedule();
    ASSERT_FALSE(step.empty());
    for (const ScheduledSequence& scheduled : step.sequences) EXPECT_LE(scheduled.sequence->id, 2u);
    answer_all(scheduler, step);
    preempted = scheduler.counters().preemptions;
    for (const ScheduledSequence& scheduled : step.sequences)
      if (scheduled.sequence->num_output_tokens() == 12) scheduler.finish(*scheduled.sequence);
  }
  EXPECT_GT(preempted, 0) << "six pages are too few for both";
  EXPECT_TRUE(scheduler.schedule().empty());
  EXPECT_EQ(scheduler.waiting(), 2);
  scheduler.hold_admission(false);
  EXPECT_EQ(rows_of(scheduler.schedule()), (Rows{{4, 4}, {3, 4}}));
}

TEST(Scheduler, RetractedSequencesBeginAgainWithTheirTokens) {
  BlockManager blocks({.pages = {20, 0}, .page_size = 4});
  EngineConfig config{.max_context = 24, .step_tokens = 64};
  Scheduler scheduler(config, blocks);
  scheduler.add(sequence_of(1, 8, 12));
  scheduler.add(sequence_of(2, 5, 12));
  for (int step = 0; step < 3; ++step) answer_all(scheduler, scheduler.schedule());
  scheduler.retract();
  scheduler.reset_prefix_cache();
  EXPECT_EQ(blocks.pages_in_use(), 0);
  EXPECT_EQ(scheduler.running(), 0);
  EXPECT_EQ(rows_of(scheduler.schedule()), (Rows{{1, 11}, {2, 8}}));
}

}  // namespace
}  // namespace fathom::engine
