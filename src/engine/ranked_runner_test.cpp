// Several ranks against one: the same tokens of the bundled model; and ranks that fail.
#include "engine/ranked_runner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/thread_group.h"
#include "engine/engine.h"

namespace fathom::engine {
namespace {

using model::TokenId;
using namespace std::chrono_literals;

const model::Checkpoint& bundled() {
  static const model::Checkpoint checkpoint =
      model::Checkpoint::open(std::filesystem::path(FATHOM_SOURCE_TREE) / "models/tiny").value();
  return checkpoint;
}

struct RankedAnswer {
  std::vector<TokenId> ids;
  FinishReason finish = {};
  std::string error;
};

RankedAnswer answer_of(Engine& engine, Request request) {
  RankedAnswer answer;
  std::promise<void> ended;
  const auto submitted = engine.submit(std::move(request), [&](const RequestOutput& output) {
    for (const Sampled& token : output.tokens) answer.ids.push_back(token.id);
    if (!output.finish) return;
    answer.finish = *output.finish;
    answer.error  = output.error;
    ended.set_value();
  });
  EXPECT_TRUE(std::holds_alternative<RequestId>(submitted));
  EXPECT_EQ(ended.get_future().wait_for(300s), std::future_status::ready);
  return answer;
}

EngineConfig config_of_ranks(int64_t ranks, bool expert_parallel) {
  return {.threads         = 2,
          .tensor_parallel = ranks,
          .expert_parallel = expert_parallel,
          .max_context     = 256,
          .kv_tokens       = 512,
          .step_tokens     = 48};
}

// Greedy and seeded, prompts within and beyond the window of 64.
std::vector<Request> some_requests() {
  std::vector<Request> requests;
  for (const int64_t length : {1, 90})
    for (const SamplingParameters& sampling :
         {SamplingParameters{.temperature = 0}, SamplingParameters{.temperature = 2, .seed = 7}}) {
      Request& request = requests.emplace_back();
      for (int64_t t = 0; t < length; ++t)
        request.prompt.push_back(static_cast<TokenId>((t * t * 3 + t * 5 + length) % 600));
      request.sampling   = sampling;
      request.max_tokens = 8;
    }
  return requests;
}

TEST(RankedRunner, AnyNumberOfRanksGivesTheTokensOfOne) {
  std::vector<std::vector<TokenId>> expected;
  for (const auto& [ranks, expert_parallel] :
       {std::pair{1, false}, {2, false}, {2, true}, {4, false}, {4, true}}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks" << (expert_parallel ? ", expert parallel" : ""));
    auto engine = Engine::start(bundled(), config_of_ranks(ranks, expert_parallel));
    ASSERT_TRUE(engine) << engine.error().message;
    std::vector<std::vector<TokenId>> ids;
    for (Request& request : some_requests()) ids.push_back(answer_of(**engine, std::move(request)).ids);
    if (expected.empty()) expected = ids;
    EXPECT_EQ(ids, expected);
  }
  EXPECT_EQ(expected[0].size(), 8u);
  EXPECT_NE(expected[0], expected[1]);  // the seed has an effect
}

TEST(RankedRunner, SaysWhatTheRanksAreAndKeep) {
  const auto one  = Engine::start(bundled(), config_of_ranks(1, false)),
             two  = Engine::start(bundled(), config_of_ranks(2, true)),
             four = Engine::start(bundled(), config_of_ranks(4, true));
  EXPECT_EQ((*two)->device_name(), "2 ranks of 1 thread");
  EXPECT_EQ((*two)->threads(), 2);
  EXPECT_EQ((*four)->threads(), 4);  // at least one each
  const MemoryUse of_one = (*one)->stats().memory, of_two = (*two)->stats().memory,
                  of_four = (*four)->stats().memory;
  EXPECT_EQ(of_two.weights, of_one.weights);
  EXPECT_EQ(of_two.kv_cache, of_one.kv_cache);       // a KV head each
  EXPECT_EQ(of_four.kv_cache, 2 * of_one.kv_cache);  // copies
}

TEST(RankedRunner, WhatDoesNotFitIsRefusedAtTheStart) {
  const auto message = [](EngineConfig config) {
    const auto engine = Engine::start(bundled(), config);
    return engine ? std::string() : engine.error().message;
  };
  EXPECT_EQ(message(config_of_ranks(3, false)),
            "--tensor-parallel-size 3 does not divide the model's 8 attention heads: give a divisor");
  EXPECT_EQ(
      message(config_of_ranks(8, false)),
      "--tensor-parallel-size 8 needs experts of at least 8 x 32 columns in blocks of 32, and the model's "
      "have 224: give fewer ranks, or --enable-expert-parallel");
}

// Does `fault` in its first operation, instead of taking part. Its rank leaves the group when it is
// destroyed, as any rank does.
class FaultyGroup final : public comm::Group {
 public:
  FaultyGroup(std::unique_ptr<comm::Group> real, const comm::GroupOptions& options,
              std::function<void()> fault)
      : Group(real->rank(), real->size(), options), real_(std::move(real)), fault_(std::move(fault)) {}

 private:
  void exchange(const comm::Call&, std::span<const Outgoing>, std::span<const Incoming>) override {
    fault_();
    throw std::logic_error("the fault did not throw");
  }

  std::unique_ptr<comm::Group> real_;
  std::function<void()> fault_;
};

// An engine of two ranks, of which rank `faulty` has a fault in the first group. The timeout is the first
// group's, and the runner's.
struct FaultyEngine {
  FaultyEngine(int faulty, std::chrono::milliseconds timeout, const std::function<void()>& fault) {
    const comm::GroupOptions options{.timeout = timeout};
    const auto make_groups = [this, faulty, options, fault] {
      auto groups = comm::make_thread_groups(2, made == 0 ? options : comm::GroupOptions{.timeout = 200s});
      if (made++ == 0) {
        auto& group = groups[static_cast<size_t>(faulty)];
        group       = std::make_unique<FaultyGroup>(std::move(group), options, fault);
      }
      return groups;
    };
    const EngineConfig config = config_of_ranks(2, false);
    engine = Engine::start(bundled(), config, [&](const std::array<int64_t, kKvKinds>& pages) {
               auto made_runner =
                   std::make_unique<RankedRunner>(bundled(), config, pages, options, make_groups);
               runner = made_runner.get();
               return made_runner;
             }).value();
  }

  int made             = 0;
  RankedRunner* runner = nullptr;
  std::unique_ptr<Engine> engine;
};

Request one_request() { return std::move(some_requests()[0]); }

std::vector<TokenId> right_answer() {
  return answer_of(*Engine::start(bundled(), config_of_ranks(1, false)).value(), one_request()).ids;
}

// The timeout is far off: the others see at once that a rank has left.
TEST(RankedRunner, ARankThatThrowsEndsTheStepAndTheNextOneRuns) {
  for (const int faulty : {0, 1}) {
    FaultyEngine faulty_engine(faulty, 200s, [] { throw std::runtime_error("no memory for a message"); });
    const auto begin          = std::chrono::steady_clock::now();
    const RankedAnswer failed = answer_of(*faulty_engine.engine, one_request());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 100s);
    EXPECT_EQ(failed.finish, FinishReason::error);
    const std::string rank = "rank " + std::to_string(faulty);
    EXPECT_TRUE(
        failed.error.starts_with(rank + " failed: no memory for a message; " + rank +
                                 " left the group while others were in all_reduce (collective 1) of "))
        << failed.error;
    const RankedAnswer next = answer_of(*faulty_engine.engine, one_request());
    EXPECT_EQ(next.finish, FinishReason::length);
    EXPECT_EQ(next.ids, right_answer());
    EXPECT_EQ(faulty_engine.made, 2);
  }
}

TEST(RankedRunner, AFailureNamesRankAndOperation) {
  FaultyEngine faulty_engine(1, 200s, [] { throw std::runtime_error("no memory"); });
  std::promise<std::optional<RankFailure>> failure;
  // Between the step and the next one: on the engine's thread.
  (void)answer_of(*faulty_engine.engine, one_request());
  faulty_engine.engine->with_kv([&](KvStore&) { failure.set_value(faulty_engine.runner->failure()); });
  const auto seen = failure.get_future().get();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->rank, 1);
  EXPECT_EQ(seen->operation, comm::Operation::all_reduce);
}

TEST(RankedRunner, ARankThatHangsIsGivenUpUntilItComesBack) {
  for (const int faulty : {0, 1}) {
    std::promise<void> release;
    const std::shared_future<void> released = release.get_future().share();
    FaultyEngine faulty_engine(faulty, 200ms, [released] {
      released.wait_for(120s);
      throw std::runtime_error("came late");
    });
    const std::string rank    = "rank " + std::to_string(faulty);
    const RankedAnswer failed = answer_of(*faulty_engine.engine, one_request());
    EXPECT_EQ(failed.finish, FinishReason::error);
    EXPECT_TRUE(failed.error.starts_with(rank + " did not come to all_reduce (collective 1) of "))
        << failed.error;
    EXPECT_EQ(answer_of(*faulty_engine.engine, one_request()).error,
              rank + " has not come back from a step that was given up: restart the program if it does not");
    EXPECT_EQ(faulty_engine.made, 1);

    release.set_value();
    RankedAnswer next;
    for (int tries = 0; tries < 1000 && next.finish != FinishReason::length; ++tries) {
      next = answer_of(*faulty_engine.engine, one_request());
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_EQ(next.ids, right_answer());
  }
}

}  // namespace
}  // namespace fathom::engine
