// Async scheduling with steps launched before the host has seen the tokens of the step in flight, as on
// a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/hash_runner.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::engine {
namespace {

using model::TokenId;
using namespace std::chrono_literals;

// Its steps never end until let_go().
class HangingRunner final : public HashRunner {
 public:
  using HashRunner::HashRunner;
  std::vector<SequenceOutput> get_output(const SchedulerOutput& step) override {
    hangs_ = true;
    hangs_.notify_all();
    let_go_.wait(false);
    return HashRunner::get_output(step);
  }
  void wait_until_it_hangs() { hangs_.wait(false); }
  void let_go() {
    let_go_ = true;
    let_go_.notify_all();
  }

 private:
  std::atomic<bool> hangs_ = false, let_go_ = false;
};

class AsyncScheduling : public testing::Test {
 protected:
  void SetUp() override {
    ThreadPool pool(1);
    ASSERT_TRUE(model::make_synthetic_checkpoint({.shape = model::ModelShape::tiny, .seed = 3},
                                                 folder_.path(), pool));
    auto opened = model::Checkpoint::open(folder_.path());
    ASSERT_TRUE(opened);
    checkpoint_ = std::make_unique<model::Checkpoint>(std::move(opened).value());
  }

  struct Asked {
    std::vector<TokenId> prompt, expected;
    std::vector<TokenId> stop_ids;
    int64_t max_tokens = 0;
    int priority       = 0;
    size_t cancel_at   = 0;  // tokens; 0: never
  };
  // Prompts with common prefixes. Answers end by length, by a stop token or by cancellation.
  static std::vector<Asked> questions(uint32_t seed, size_t count) {
    std::mt19937 random(seed);
    std::vector<Asked> all(count);
    for (size_t q = 0; q < count; ++q) {
      Asked& asked        = all[q];
      const size_t length = 1 + random() % 60;
      for (size_t t = 0; t < length; ++t)
        asked.prompt.push_back(static_cast<TokenId>(q % 3 == 0 && t < 24 ? t : random() % kVocab));
      asked.max_tokens = 1 + static_cast<int64_t>(random() % 40);
      asked.priority   = static_cast<int>(random() % 3);
      uint64_t hash    = 1;
      for (const TokenId token : asked.prompt) hash = mixed(hash, token);
      while (static_cast<int64_t>(asked.expected.size()) < asked.max_tokens) {
        asked.expected.push_back(token_of(hash));
        hash = mixed(hash, token_of(hash));
      }
      if (q % 4 == 1) {
        asked.stop_ids   = {asked.expected[random() % asked.expected.size()]};
        const auto first = std::find(asked.expected.begin(), asked.expected.end(), asked.stop_ids.front());
        asked.expected.erase(first + 1, asked.expected.end());
      }
      if (q % 7 == 3) asked.cancel_at = 1 + random() % 8;
    }
    return all;
  }

  void expect_answers(const EngineConfig& config, bool follows, Counts& counts) {
    const auto asked = questions(static_cast<uint32_t>(config.kv_tokens), 60);
    auto started     = Engine::start(*checkpoint_, config, [&](const auto& pages) {
      return std::make_unique<HashRunner>(config, pages, follows, counts);
    });
    ASSERT_TRUE(started) << started.error().message;
    Engine& engine = **started;

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::vector<TokenId>> answers(asked.size());
    std::vector<RequestId> ids(asked.size());
    std::vector<FinishReason> reasons(asked.size());
    size_t ended = 0;
    for (size_t q = 0; q < asked.size(); ++q) {
      Request request;
      request.prompt               = asked[q].prompt;
      request.max_tokens           = asked[q].max_tokens;
      request.stop_ids             = asked[q].stop_ids;
      request.priority             = asked[q].priority;
      request.sampling.temperature = 0;
      const std::lock_guard lock(mutex);  // the listener reads ids
      const auto taken = engine.submit(std::move(request), [&, q](const RequestOutput& progress) {
        const std::lock_guard told(mutex);
        const size_t before = answers[q].size();
        for (const Sampled& token : progress.tokens) answers[q].push_back(token.id);
        EXPECT_EQ(progress.error, "");
        const size_t at = asked[q].cancel_at;
        if (at > 0 && before < at && answers[q].size() >= at && !progress.finish) engine.cancel(ids[q]);
        if (!progress.finish) return;
        reasons[q] = *progress.finish;
        ++ended;
        changed.notify_all();
      });
      ASSERT_TRUE(std::holds_alternative<RequestId>(taken));
      ids[q] = std::get<RequestId>(taken);
    }
    {
      std::unique_lock lock(mutex);
      ASSERT_TRUE(changed.wait_for(lock, 300s, [&] { return ended == asked.size(); }));
    }
    ASSERT_TRUE(engine.drain(300s));
    EXPECT_EQ(engine.stats().pages_in_use, 0);
    for (size_t q = 0; q < asked.size(); ++q) {
      auto expected = asked[q].expected;
      if (reasons[q] == FinishReason::cancelled)
        expected.resize(std::min(expected.size(), answers[q].size()));
      EXPECT_EQ(answers[q], expected) << "request " << q;
    }
  }

  static EngineConfig config(int64_t kv_tokens) {
    return {
        .max_context = 128, .max_sequences = 6, .kv_tokens = kv_tokens, .page_size = 4, .step_tokens = 24};
  }

  model::TempFolder folder_;
  std::unique_ptr<model::Checkpoint> checkpoint_;
};

TEST_F(AsyncScheduling, GivesTheSameTokensAsSynchronousSteps) {
  // Pages for all sequences, for some, and for little more than one: the latter preempt.
  for (const int64_t kv_tokens : {4096, 300, 140}) {
    Counts alone, following;
    expect_answers(config(kv_tokens), false, alone);
    expect_answers(config(kv_tokens), true, following);
    EXPECT_EQ(alone.followed, 0);
    EXPECT_GT(following.followed, following.steps / 2) << kv_tokens;
    EXPECT_GT(following.ended_in_flight, 0) << "nobody ended while a step of his was in flight";
  }
}

// An idle engine has not stalled however long it waits; one with work has, from its last step on.
TEST_F(AsyncScheduling, AnEngineWhoseStepHangsSaysForHowLong) {
  Counts counts;
  HangingRunner* runner = nullptr;
  const auto started    = Engine::start(*checkpoint_, config(400), [&](const auto& pages) {
    auto made = std::make_unique<HangingRunner>(config(400), pages, false, counts);
    runner    = made.get();
    return made;
  });
  ASSERT_TRUE(started);
  Engine& engine = **started;
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(engine.stats().stalled_s, 0);
  const auto before = std::chrono::steady_clock::now();
  Request request;
  request.prompt          = {1, 2, 3};
  std::atomic<bool> ended = false;
  (void)engine.submit(std::move(request), [&](const RequestOutput& output) {
    if (!output.finish) return;
    ended = true;
    ended.notify_all();
  });
  runner->wait_until_it_hangs();
  const auto hung = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(5ms);
  using Seconds          = std::chrono::duration<double>;
  const Seconds at_least = std::chrono::steady_clock::now() - hung;
  const double stalled_s = engine.stats().stalled_s;
  const Seconds at_most  = std::chrono::steady_clock::now() - before;
  EXPECT_GE(stalled_s, at_least.count());
  EXPECT_LE(stalled_s, at_most.count()) << "the time while it was idle does not count";
  EXPECT_EQ(engine.stats().generated_tokens, 0);
  std::this_thread::sleep_for(5ms);
  EXPECT_GT(engine.stats().stalled_s, stalled_s);
  runner->let_go();
  ended.wait(false);
  ASSERT_TRUE(engine.drain(60s));
  EXPECT_EQ(engine.stats().stalled_s, 0);
}

// Whoever brings blocks to the prefix cache waits for no request to end, although a step is always in flight.
TEST_F(AsyncScheduling, WorkOnTheCacheRunsWhileStepsOverlap) {
  Counts counts;
  const auto started = Engine::start(*checkpoint_, config(400), [&](const auto& pages) {
    return std::make_unique<HashRunner>(config(400), pages, true, counts);
  });
  ASSERT_TRUE(started);
  Engine& engine = **started;
  Request request;
  request.prompt             = {1, 2, 3};
  request.max_tokens         = 100;
  size_t tokens              = 0;  // on the engine's thread
  std::atomic<size_t> seen   = 0;
  std::atomic<bool> finished = false;
  (void)engine.submit(std::move(request), [&](const RequestOutput& output) {
    if (tokens == 0) engine.with_kv([&](KvStore&) { seen = tokens; });
    tokens += output.tokens.size();
    if (!output.finish) return;
    finished = true;
    finished.notify_all();
  });
  finished.wait(false);
  ASSERT_TRUE(engine.drain(60s));
  EXPECT_GT(seen, 0u);
  EXPECT_LE(seen, 3u);
  EXPECT_GT(counts.followed, 90);
}

// Requests of one prompt, all there before the first step: its full blocks are computed once.
TEST_F(AsyncScheduling, APromptOfSeveralRequestsIsComputedOnce) {
  constexpr int64_t kRequests = 5, kPrompt = 50, kBlocks = 48;  // the last two are no full block of 4
  for (const bool in_batch : {true, false})
    for (const bool follows : {true, false}) {
      Counts counts;
      EngineConfig c            = config(4096);
      c.step_tokens             = 300;
      c.in_batch_prefix_caching = in_batch;
      const auto started        = Engine::start(*checkpoint_, c, [&](const auto& pages) {
        return std::make_unique<HashRunner>(c, pages, follows, counts);
      });
      ASSERT_TRUE(started);
      Engine& engine = **started;
      std::array<std::vector<TokenId>, kRequests> answers;
      std::promise<void> all_there;
      engine.with_kv([there = all_there.get_future().share()](KvStore&) { there.wait(); });
      for (auto& answer : answers) {
        Request request;
        for (TokenId t = 0; t < kPrompt; ++t) request.prompt.push_back(t);
        (void)engine.submit(std::move(request), [&answer](const RequestOutput& output) {
          for (const Sampled& token : output.tokens) answer.push_back(token.id);
        });
      }
      all_there.set_value();
      ASSERT_TRUE(engine.drain(60s));
      for (const auto& answer : answers) EXPECT_EQ(answer, answers[0]);
      EXPECT_EQ(answers[0].size(), 16u);
      const GeneratorStats stats = engine.stats();
      EXPECT_EQ(stats.prefix_hit_tokens, in_batch ? (kRequests - 1) * kBlocks : 0);
      EXPECT_EQ(stats.prompt_tokens, kRequests * kPrompt);
      EXPECT_EQ(stats.step_rows, kRequests * (kPrompt + 15) - stats.prefix_hit_tokens);
      EXPECT_EQ(stats.pages_in_use, 0);
    }
}

// A step that fails ends its requests, and those that found blocks it should have computed. All others get
// their tokens.
TEST_F(AsyncScheduling, AFailedStepMisleadsNobody) {
  for (const bool follows : {true, false})
    for (int64_t failing = 0; failing < 12; ++failing) {
      SCOPED_TRACE("step " + std::to_string(failing));
      Counts counts;
      EngineConfig c     = config(4096);
      const auto started = Engine::start(*checkpoint_, c, [&](const auto& pages) {
        auto runner = std::make_unique<HashRunner>(c, pages, follows, counts);
        runner->fail_at(failing);
        return runner;
      });
      ASSERT_TRUE(started);
      Engine& engine = **started;
      std::mutex mutex;
      int right = 0, failed = 0;
      for (int q = 0; q < 30; ++q) {
        Request request;
        for (TokenId t = 0; t < 30 + q % 3; ++t) request.prompt.push_back(t + q / 10);
        request.max_tokens = 4;
        std::vector<TokenId> expected;
        uint64_t hash = 1;
        for (const TokenId token : request.prompt) hash = mixed(hash, token);
        for (int n = 0; n < 4; ++n, hash = mixed(hash, expected.back())) expected.push_back(token_of(hash));
        (void)engine.submit(std::move(request), [&, expected, answer = std::vector<TokenId>()](
                                                    const RequestOutput& output) mutable {
          const std::lock_guard lock(mutex);
          for (const Sampled& token : output.tokens) answer.push_back(token.id);
          if (!output.finish) return;
          (*output.finish == FinishReason::error ? failed : right) += 1;
          if (*output.finish == FinishReason::error) expected.resize(answer.size());
          EXPECT_EQ(answer, expected);
        });
      }
      ASSERT_TRUE(engine.drain(60s));
      EXPECT_EQ(right + failed, 30);
      EXPECT_GE(failed, 1);
      EXPECT_LE(failed, 2 * c.max_sequences);
      EXPECT_EQ(engine.stats().pages_in_use, 0);
    }
}

// Requests of one prompt, in chunks. One is cancelled after a step: whatever others have found of its blocks,
// they get their tokens.
TEST_F(AsyncScheduling, ACancelledPromptMisleadsNobody) {
  for (const bool follows : {true, false})
    for (const RequestId cancelled : {1, 2})
      for (int at = 1; at <= 12; ++at) {
        SCOPED_TRACE("request " + std::to_string(cancelled) + " after step " + std::to_string(at));
        Counts counts;
        Engine* engine = nullptr;
        EngineConfig c = config(4096);
        c.on_step      = [&, step = 0](const StepRecord&) mutable {
          if (++step == at) engine->cancel(cancelled);
        };
        const auto started = Engine::start(*checkpoint_, c, [&](const auto& pages) {
          return std::make_unique<HashRunner>(c, pages, follows, counts);
        });
        ASSERT_TRUE(started);
        engine = started->get();
        std::vector<TokenId> prompt(90);
        std::iota(prompt.begin(), prompt.end(), 0);
        std::vector<TokenId> expected;
        uint64_t hash = 1;
        for (const TokenId token : prompt) hash = mixed(hash, token);
        for (int n = 0; n < 3; ++n, hash = mixed(hash, expected.back())) expected.push_back(token_of(hash));
        std::array<std::vector<TokenId>, 6> answers;
        for (auto& answer : answers)
          (void)engine->submit({.prompt = prompt, .sampling = {.temperature = 0}, .max_tokens = 3},
                               [&answer](const RequestOutput& output) {
                                 for (const Sampled& token : output.tokens) answer.push_back(token.id);
                               });
        ASSERT_TRUE(engine->drain(60s));
        for (size_t a = 0; a < answers.size(); ++a) {
          std::vector<TokenId> due = expected;
          if (a + 1 == cancelled) due.resize(std::min(due.size(), answers[a].size()));
          EXPECT_EQ(answers[a], due) << "request " << a + 1;
        }
        EXPECT_EQ(engine->stats().pages_in_use, 0);
      }
}

TEST_F(AsyncScheduling, GivesTheSameTokensWithoutPrefixCacheAndChunkedPrefill) {
  Counts counts;
  EngineConfig c = config(400);
  c.prefix_cache = false;
  expect_answers(c, true, counts);
  c.chunked_prefill = false;
  c.step_tokens     = 64;
  expect_answers(c, true, counts);
  EXPECT_GT(counts.followed, 0);
}

}  // namespace
}  // namespace fathom::engine
