// Steps that are launched before the host has seen the tokens of the step in flight, as on a GPU, but on a
// runner whose model is a hash of all tokens so far, kept in pages: a token, a row or a page that is not the
// right one changes every token behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "model/make.h"
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

// Computes a step when it is launched, in order, as a stream does.
class HashRunner final : public ModelRunner {
 public:
  HashRunner(const EngineConfig& config, const std::array<int64_t, kGroups>& pages, bool follows,
             Counts& counts)
      : page_size_(config.page_size), follows_(follows), counts_(counts) {
    for (int group = 0; group < kGroups; ++group)
      cache_[static_cast<size_t>(group)].resize(
          static_cast<size_t>(pages[static_cast<size_t>(group)] * page_size_));
  }

  bool can_follow(const StepPlan&) const override { return follows_ && flights_.size() == 1; }

  void launch(const StepPlan& plan) override {
    ASSERT_LE(flights_.size(), follows_ ? 1u : 0u);
    ++counts_.steps;
    counts_.followed += !flights_.empty();
    std::vector<Computed> flight;
    std::unordered_map<RequestId, TokenId> chosen;
    for (const StepEntry& entry : plan.entries) {
      const Sequence& sequence = *entry.sequence;
      uint64_t hash            = 0;
      for (int64_t p = entry.first; p < entry.first + entry.rows; ++p) {
        TokenId token = 0;
        if (p < sequence.known()) {
          token = sequence.tokens[static_cast<size_t>(p)];
        } else {
          ASSERT_EQ(p, sequence.known()) << "a token further than the next is needed";
          ASSERT_TRUE(chosen_.contains(sequence.id)) << "no step yields the token that is needed";
          token = chosen_[sequence.id];
        }
        const uint64_t before = p == 0 ? 1 : at(kFull, sequence, p - 1);
        if (p > 0) {
          EXPECT_EQ(at(kWindow, sequence, p - 1), before) << "the window's pages are others";
        }
        hash = at(kFull, sequence, p) = at(kWindow, sequence, p) = mixed(before, token);
      }
      flight.push_back({sequence.id, entry.samples, token_of(hash)});
      if (entry.samples) chosen[sequence.id] = token_of(hash);
    }
    chosen_ = std::move(chosen);
    flights_.push_back(std::move(flight));
  }

  std::vector<StepOutput> collect(const StepPlan& plan) override {
    const std::vector<Computed> flight = std::move(flights_.front());
    flights_.pop_front();
    EXPECT_EQ(plan.entries.size(), flight.size());
    std::vector<StepOutput> outputs(flight.size());
    for (size_t e = 0; e < flight.size(); ++e) {
      if (!plan.entries[e].sequence) {
        ++counts_.ended_in_flight;
        continue;
      }
      EXPECT_EQ(plan.entries[e].sequence->id, flight[e].id);
      if (flight[e].samples) outputs[e].tokens.push_back({.id = flight[e].token});
    }
    return outputs;
  }

  std::string where() const override { return "a hash"; }
  int threads() const override { return 1; }
  double forward_s() const override { return 0; }
  double sample_s() const override { return 0; }

 private:
  struct Computed {
    RequestId id;
    bool samples;
    TokenId token;
  };

  uint64_t& at(Group group, const Sequence& sequence, int64_t position) {
    const auto& pages = sequence.pages.runs[group].pages;
    return cache_[group].at(static_cast<size_t>(
        pages.at(static_cast<size_t>(position / page_size_)) * page_size_ + position % page_size_));
  }

  const int64_t page_size_;
  const bool follows_;
  Counts& counts_;
  std::array<std::vector<uint64_t>, kGroups> cache_;
  std::unordered_map<RequestId, TokenId> chosen_;  // by the latest step
  std::deque<std::vector<Computed>> flights_;
};

class FollowingSteps : public testing::Test {
 protected:
  void SetUp() override {
    ThreadPool pool(1);
    ASSERT_TRUE(model::make_model({.shape = model::Shape::tiny, .seed = 3}, folder_.path(), pool));
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
  // Prompts that begin alike, answers that end by length, by a stop token, or because nobody wants them.
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
      const auto taken = engine.submit(std::move(request), [&, q](const Progress& progress) {
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

TEST_F(FollowingSteps, AnswerWhatStepAfterStepDoes) {
  // Pages for all, for some of them, and for little more than one: the last have to push others out.
  for (const int64_t kv_tokens : {4096, 300, 140}) {
    Counts alone, following;
    expect_answers(config(kv_tokens), false, alone);
    expect_answers(config(kv_tokens), true, following);
    EXPECT_EQ(alone.followed, 0);
    EXPECT_GT(following.followed, following.steps / 2) << kv_tokens;
    EXPECT_GT(following.ended_in_flight, 0) << "nobody ended while a step of his was in flight";
  }
}

TEST_F(FollowingSteps, AnswerTheSameWithoutPrefixesAndWithPromptsInOnePiece) {
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
