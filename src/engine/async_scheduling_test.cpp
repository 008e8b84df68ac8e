// Async scheduling with steps launched before the host has seen the tokens of the step in flight, as on
// a GPU. The runner's model is a hash of all tokens so far, kept in the pages: a wrong token, row or page
// changes every later token.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::engine {
namespace {

using model::TokenId;
using namespace std::chrono_literals;

constexpr int64_t kVocab = 384;

uint64_t mixed(uint64_t before, TokenId token) {
  uint64_t z = before * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(token) + 1;
  z          = (z ^ (z >> 31)) * 0xBF58476D1CE4E5B9ull;
  return z ^ (z >> 29);
}
TokenId token_of(uint64_t hash) { return static_cast<TokenId>(hash % kVocab); }

struct Counts {
  int64_t steps = 0, followed = 0, ended_in_flight = 0;
};

// Computes a step when it is launched. Steps run in order, as on a stream.
class HashRunner : public ModelRunner {
 public:
  HashRunner(const EngineConfig& config, const std::array<int64_t, kKvKinds>& pages, bool follows,
             Counts& counts)
      : page_size_(config.page_size), follows_(follows), counts_(counts) {
    for (int kind = 0; kind < kKvKinds; ++kind)
      cache_[static_cast<size_t>(kind)].resize(
          static_cast<size_t>(pages[static_cast<size_t>(kind)] * page_size_));
  }

  bool can_overlap(const SchedulerOutput&) const override { return follows_ && steps_in_flight_.size() == 1; }

  void execute_model(const SchedulerOutput& step) override {
    ASSERT_LE(steps_in_flight_.size(), follows_ ? 1u : 0u);
    ++counts_.steps;
    counts_.followed += !steps_in_flight_.empty();
    std::vector<Computed> step_results;
    std::unordered_map<RequestId, TokenId> chosen;
    for (const ScheduledSequence& scheduled : step.sequences) {
      const Sequence& sequence = *scheduled.sequence;
      uint64_t hash            = 0;
      for (int64_t p = scheduled.first; p < scheduled.first + scheduled.rows; ++p) {
        TokenId token = 0;
        if (p < sequence.num_tokens()) {
          token = sequence.tokens[static_cast<size_t>(p)];
        } else {
          ASSERT_EQ(p, sequence.num_tokens()) << "a token further than the next is needed";
          ASSERT_TRUE(sampled_.contains(sequence.id)) << "no step yields the token that is needed";
          token = sampled_[sequence.id];
        }
        const uint64_t before = p == 0 ? 1 : at(kFull, sequence, p - 1);
        if (p > 0) {
          EXPECT_EQ(at(kWindow, sequence, p - 1), before) << "the window's pages are others";
        }
        hash = at(kFull, sequence, p) = at(kWindow, sequence, p) = mixed(before, token);
      }
      step_results.push_back({sequence.id, scheduled.samples, token_of(hash)});
      if (scheduled.samples) chosen[sequence.id] = token_of(hash);
    }
    sampled_ = std::move(chosen);
    steps_in_flight_.push_back(std::move(step_results));
  }

  std::vector<SequenceOutput> get_output(const SchedulerOutput& step) override {
    const std::vector<Computed> step_results = std::move(steps_in_flight_.front());
    steps_in_flight_.pop_front();
    EXPECT_EQ(step.sequences.size(), step_results.size());
    std::vector<SequenceOutput> outputs(step_results.size());
    for (size_t e = 0; e < step_results.size(); ++e) {
      if (!step.sequences[e].sequence) {
        ++counts_.ended_in_flight;
        continue;
      }
      EXPECT_EQ(step.sequences[e].sequence->id, step_results[e].id);
      if (step_results[e].samples) outputs[e].tokens.push_back({.id = step_results[e].token});
    }
    return outputs;
  }

  std::string device_name() const override { return "a hash"; }
  int threads() const override { return 1; }
  double forward_s() const override { return 0; }
  double sample_s() const override { return 0; }

 private:
  struct Computed {
    RequestId id;
    bool samples;
    TokenId token;
  };

  uint64_t& at(KvKind kind, const Sequence& sequence, int64_t position) {
    const auto& pages = sequence.pages.block_tables[kind].pages;
    return cache_[kind].at(static_cast<size_t>(
        pages.at(static_cast<size_t>(position / page_size_)) * page_size_ + position % page_size_));
  }

  const int64_t page_size_;
  const bool follows_;
  Counts& counts_;
  std::array<std::vector<uint64_t>, kKvKinds> cache_;
  std::unordered_map<RequestId, TokenId> sampled_;  // tokens of the latest step
  std::deque<std::vector<Computed>> steps_in_flight_;
};

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
