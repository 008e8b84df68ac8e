// Several ranks against one: the same tokens of the bundled model; and ranks that fail.
#include "engine/ranked_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/thread_group.h"
#include "core/thread_pool.h"
#include "engine/engine.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

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

EngineConfig config_of_stages(int64_t stages, int64_t ranks) {
  EngineConfig config      = config_of_ranks(ranks, false);
  config.pipeline_parallel = stages;
  return config;
}

std::vector<std::vector<TokenId>> answers_of(Engine& engine);
EngineConfig config_with_eplb(int64_t ranks, int64_t redundant);

// Of six layers, also where stages have one each, so that each has layers of one kind only.
TEST(RankedRunner, AnyNumberOfStagesGivesTheTokensOfOne) {
  const auto expected = answers_of(*Engine::start(bundled(), config_of_ranks(1, false)).value());
  for (const auto& [stages, ranks] : {std::pair{2, 1}, {3, 1}, {6, 1}, {2, 2}, {3, 4}}) {
    SCOPED_TRACE(testing::Message() << stages << " stages of " << ranks);
    auto engine = Engine::start(bundled(), config_of_stages(stages, ranks));
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ(answers_of(**engine), expected);
    EXPECT_TRUE((*engine)->drain(60s));
    const View<const int64_t, 2> load = (*engine)->expert_load();
    ASSERT_EQ(load.extent(0), 6);
    for (int64_t l = 0; l < 6; ++l)  // 4 experts for each row
      EXPECT_EQ(std::accumulate(&load(l, 0), &load(l, 0) + load.extent(1), int64_t{0}),
                (*engine)->stats().step_rows * 4);
  }
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
  const auto stages = Engine::start(bundled(), config_of_stages(2, 1)),
             both   = Engine::start(bundled(), config_of_stages(3, 2));
  EXPECT_EQ((*stages)->device_name(), "2 stages of 1 thread");
  EXPECT_EQ((*both)->device_name(), "3 stages of 2 ranks of 1 thread");
  EXPECT_EQ((*both)->threads(), 6);
  EXPECT_EQ((*stages)->stats().memory.weights, of_one.weights);
  EXPECT_EQ((*stages)->stats().memory.kv_cache, of_one.kv_cache);
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
  EXPECT_EQ(message(config_of_stages(7, 1)),
            "--pipeline-parallel-size 7 needs a layer for each stage, and the model has 6: give at most 6");
  EngineConfig config = config_of_stages(2, 1);
  config.gpu          = true;
  EXPECT_EQ(message(config),
            "--pipeline-parallel-size is not implemented on GPUs: give --tensor-parallel-size, or run stages "
            "on CPUs with --device cpu");
  config                   = config_with_eplb(2, 0);
  config.pipeline_parallel = 2;
  EXPECT_EQ(
      message(config),
      "--enable-eplb counts the experts of all layers in one stage: leave --pipeline-parallel-size at 1");
  config              = config_of_stages(2, 1);
  config.draft_tokens = 2;
  config.draft_method = EngineConfig::DraftMethod::eagle3;
  EXPECT_TRUE(message(config).starts_with("a draft model reads hidden states of layers that lie in several"));
}

EngineConfig config_with_eplb(int64_t ranks, int64_t redundant) {
  EngineConfig config = config_of_ranks(ranks, true);
  config.eplb = {.enabled = true, .window_size = 6, .step_interval = 4, .num_redundant_experts = redundant};
  return config;
}

// Prompts of one token again and again, which few experts get, and the others.
std::vector<Request> skewed_requests() {
  std::vector<Request> requests;
  for (const TokenId token : {17, 301}) {
    Request& request   = requests.emplace_back();
    request.prompt     = std::vector<TokenId>(180, token);
    request.sampling   = {.temperature = 0};
    request.max_tokens = 8;
  }
  for (Request& request : some_requests()) requests.push_back(std::move(request));
  return requests;
}

std::vector<std::vector<TokenId>> answers_of(Engine& engine) {
  std::vector<std::vector<TokenId>> ids;
  for (Request& request : skewed_requests()) ids.push_back(answer_of(engine, std::move(request)).ids);
  return ids;
}

TEST(RankedRunner, ExpertsThatMoveGiveTheTokensOfOneRank) {
  const auto expected = answers_of(*Engine::start(bundled(), config_of_ranks(1, false)).value());
  for (const auto& [ranks, redundant] : {std::pair<int64_t, int64_t>{2, 0}, {2, 3}, {2, 8}, {4, 0}, {4, 5}}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, " << redundant << " redundant experts");
    auto engine = Engine::start(bundled(), config_with_eplb(ranks, redundant));
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ(answers_of(**engine), expected);
    EXPECT_TRUE((*engine)->drain(60s));
    const GeneratorStats stats = (*engine)->stats();
    ASSERT_TRUE(stats.eplb);
    // A plan for each of 6 layers every 4 steps. With 8 redundant experts on 2 ranks every expert is on both
    // from the start.
    EXPECT_EQ(stats.eplb->plans_taken + stats.eplb->plans_refused, stats.steps / 4 * 6);
    const bool all_everywhere = redundant == 8;
    EXPECT_EQ(stats.eplb->plans_taken == 0, all_everywhere);
    EXPECT_EQ(stats.eplb->experts_moved == 0, all_everywhere);
    // Nobody drops a token: 4 experts for each row of each layer.
    EXPECT_EQ(stats.eplb->mean_rank_tokens * static_cast<double>(ranks),
              static_cast<double>(stats.step_rows * 4 * 6));
    EXPECT_GE(stats.rank_imbalance, 1.0);
    ASSERT_TRUE(stats.eplb->balancedness);
    EXPECT_GT(*stats.eplb->balancedness, 0.25);
    EXPECT_LE(*stats.eplb->balancedness, 1);
  }
  EXPECT_FALSE(Engine::start(bundled(), config_of_ranks(2, true)).value()->stats().eplb);
}

// Placements that no planner would make, while requests run.
TEST(RankedRunner, AnyPlacementBetweenStepsGivesTheTokensOfOneRank) {
  const auto expected        = answers_of(*Engine::start(bundled(), config_of_ranks(1, false)).value());
  EngineConfig patient       = config_with_eplb(4, 0);
  patient.eplb.step_interval = 1 << 20;
  RankedRunner* runner       = nullptr;
  auto engine = Engine::start(bundled(), patient, [&](const std::array<int64_t, kKvKinds>& pages) {
                  auto made = std::make_unique<RankedRunner>(bundled(), patient, pages, comm::GroupOptions{});
                  runner    = made.get();
                  return made;
                }).value();
  std::mt19937 random(9);
  std::atomic<int> placed = 0;
  std::atomic<bool> ended = false;
  const auto place        = [&](KvStore&) {
    std::vector<ExpertPlacement> placements(6, ExpertPlacement(4));
    for (ExpertPlacement& placement : placements)
      for (int32_t e = 0; e < 8; ++e) {
        const uint32_t ranks = 1 + random() % 15;  // a bit for each
        for (size_t r = 0; r < 4; ++r)
          if (ranks >> r & 1) placement[r].push_back(e);
      }
    runner->place_experts(placements);
    ++placed;
  };
  std::thread mover([&] {
    while (!ended) {
      engine->with_kv(place);
      std::this_thread::sleep_for(200us);
    }
  });
  EXPECT_EQ(answers_of(*engine), expected);
  ended = true;
  mover.join();
  EXPECT_TRUE(engine->drain(60s));
  EXPECT_GT(placed, 0);
}

// Experts in BF16 need a copy with contiguous rows. With EPLB all ranks read one, which takes as much memory
// as the parts that ranks copy without it, and moving an expert copies nothing.
TEST(RankedRunner, ExpertsInBf16AreCopiedOnceForAllRanks) {
  const model::TempFolder folder;
  ThreadPool pool(2);
  ASSERT_TRUE(model::make_synthetic_checkpoint({.shape = model::ModelShape::tiny, .seed = 5, .bf16 = true},
                                               folder.path(), pool));
  const auto checkpoint = model::Checkpoint::open(folder.path()).value();
  const auto answer     = [](Engine& engine) {
    Request request;
    request.prompt     = std::vector<TokenId>(180, 17);
    request.sampling   = {.temperature = 0};
    request.max_tokens = 20;
    return answer_of(engine, std::move(request)).ids;
  };
  const auto one   = Engine::start(checkpoint, config_of_ranks(1, false)).value();
  const auto still = Engine::start(checkpoint, config_of_ranks(2, true)).value();
  const auto moves = Engine::start(checkpoint, config_with_eplb(2, 2)).value();
  EXPECT_EQ(answer(*moves), answer(*one));
  EXPECT_TRUE(moves->drain(60s));
  EXPECT_GT(moves->stats().eplb->experts_moved, 0);
  EXPECT_EQ(moves->stats().memory.workspace, still->stats().memory.workspace);
}

TEST(RankedRunner, EplbThatCannotBeIsRefusedAtTheStart) {
  const auto message = [](const EngineConfig& config) {
    const auto engine = Engine::start(bundled(), config);
    return engine ? std::string() : engine.error().message;
  };
  EngineConfig config = config_with_eplb(2, 9);
  EXPECT_EQ(
      message(config),
      "--eplb-config: num_redundant_experts is 9, but must be 0 to 8: a rank holds at most one replica of "
      "each of the model's 8 experts, and there are 2 ranks");
  config                  = config_with_eplb(2, 0);
  config.eplb.window_size = 0;
  EXPECT_EQ(message(config), "--eplb-config: window_size is 0, but must be at least 1");
  config                 = config_with_eplb(2, 0);
  config.expert_parallel = false;
  EXPECT_EQ(message(config),
            "--enable-eplb moves whole experts between ranks: give --tensor-parallel-size and "
            "--enable-expert-parallel too");
  config     = config_with_eplb(2, 0);
  config.gpu = true;
  EXPECT_EQ(
      message(config),
      "--enable-eplb is not implemented on GPUs, where an expert stays on its rank: leave it out, or run "
      "ranks on CPUs with --device cpu");
}

// Does `fault` in its operations, instead of taking part. Its rank leaves the group when it is
// destroyed, as any rank does.
class FaultyGroup final : public comm::Group {
 public:
  FaultyGroup(std::unique_ptr<comm::Group> real, const comm::GroupOptions& options,
              std::function<void()> fault)
      : Group(real->rank(), real->size(), options), real_(std::move(real)), fault_(std::move(fault)) {}

 private:
  void exchange(const comm::Call&, std::span<const Outgoing>, std::span<const Incoming>) override {
    fault_();  // one that does not throw came late, with a message that nobody waits for any more
  }

  std::unique_ptr<comm::Group> real_;
  std::function<void()> fault_;
};

// An engine of two ranks, of which rank `faulty` has a fault in the first group. The timeout is the first
// group's, and the runner's.
struct FaultyEngine {
  FaultyEngine(int faulty, std::chrono::milliseconds timeout, const std::function<void()>& fault,
               const EngineConfig& config = config_of_ranks(2, false)) {
    const comm::GroupOptions options{.timeout = timeout};
    const auto make_groups = [this, faulty, options, fault, config] {
      auto groups = make_rank_groups(config, made == 0 ? options : comm::GroupOptions{.timeout = 200s});
      if (made++ == 0) {
        RankGroups& of_rank = groups[static_cast<size_t>(faulty)];
        auto& group         = of_rank.pipeline ? of_rank.pipeline : of_rank.tensor;
        group               = std::make_unique<FaultyGroup>(std::move(group), options, fault);
      }
      return groups;
    };
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

// Of the latest step: read on the engine's thread, between that step and the next one.
std::optional<RankFailure> failure_of(FaultyEngine& faulty_engine) {
  std::promise<std::optional<RankFailure>> failure;
  faulty_engine.engine->with_kv([&](KvStore&) { failure.set_value(faulty_engine.runner->failure()); });
  return failure.get_future().get();
}

// While a rank that was given up has not come back, requests fail at once.
RankedAnswer answer_once_it_is_back(FaultyEngine& faulty_engine) {
  RankedAnswer next;
  for (int tries = 0; tries < 1000 && next.finish != FinishReason::length; ++tries) {
    next = answer_of(*faulty_engine.engine, one_request());
    std::this_thread::sleep_for(10ms);
  }
  return next;
}

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

TEST(RankedRunner, AStageThatThrowsEndsTheStepAndTheNextOneRuns) {
  for (const int faulty : {0, 1, 2}) {
    FaultyEngine faulty_engine(
        faulty, 200s, [] { throw std::runtime_error("no memory for a message"); }, config_of_stages(3, 1));
    const auto begin          = std::chrono::steady_clock::now();
    const RankedAnswer failed = answer_of(*faulty_engine.engine, one_request());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 100s);
    EXPECT_EQ(failed.finish, FinishReason::error);
    const std::string rank = "rank " + std::to_string(faulty);
    EXPECT_TRUE(failed.error.starts_with(rank + " failed: no memory for a message; " + rank +
                                         " left the group while others were in message"))
        << failed.error;
    EXPECT_EQ(answer_of(*faulty_engine.engine, one_request()).ids, right_answer());
    EXPECT_EQ(faulty_engine.made, 2);
  }
}

// Of four ranks the fourth has the fault: the second of the second stage. Its stage sees it in a sum, the
// second rank of the first stage in a message.
TEST(RankedRunner, AFailureInAStageOfSeveralRanksNamesTheGroup) {
  FaultyEngine faulty_engine(
      3, 200s, [] { throw std::runtime_error("no memory"); }, config_of_stages(2, 2));
  const RankedAnswer failed = answer_of(*faulty_engine.engine, one_request());
  EXPECT_TRUE(failed.error.starts_with("rank 3 failed: no memory; ")) << failed.error;
  EXPECT_TRUE(failed.error.find("in stage 1, rank 1 left") != std::string::npos ||
              failed.error.find("among rank 1 of every stage, rank 1 left") != std::string::npos)
      << failed.error;
  EXPECT_EQ(answer_of(*faulty_engine.engine, one_request()).ids, right_answer());
}

// The last stage has what it needs and would sample, but its step has ended: nobody waited for it.
TEST(RankedRunner, AStageThatComesTooLateDoesNotSample) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  FaultyEngine faulty_engine(
      1, 200ms, [released] { released.wait_for(120s); }, config_of_stages(2, 1));
  const RankedAnswer failed = answer_of(*faulty_engine.engine, one_request());
  EXPECT_TRUE(failed.error.starts_with("rank 1 did not come to message")) << failed.error;
  release.set_value();
  EXPECT_EQ(answer_once_it_is_back(faulty_engine).ids, right_answer());
}

// With two micro-batches rank 0 waits for rank 2, which is in a sum and waits for rank 3.
TEST(RankedRunner, AHangInAStageOfSeveralRanksNamesTheRank) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  EngineConfig config                     = config_of_stages(2, 2);
  config.step_tokens                      = 96;
  FaultyEngine faulty_engine(
      3, 2s, [released] { released.wait_for(120s); }, config);
  Request request           = one_request();
  request.prompt            = std::vector<TokenId>(96, 17);
  const RankedAnswer failed = answer_of(*faulty_engine.engine, std::move(request));
  const auto seen           = failure_of(faulty_engine);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->rank, 3) << failed.error;
  release.set_value();
}

// What the ranks counted differs after a step that some of them did not end. Who computes what must not.
TEST(RankedRunner, ExpertsMoveAfterARankHasFailed) {
  const auto expected = answers_of(*Engine::start(bundled(), config_of_ranks(1, false)).value());
  for (const int faulty : {0, 1}) {
    FaultyEngine faulty_engine(
        faulty, 200s, [] { throw std::runtime_error("no memory"); }, config_with_eplb(2, 2));
    EXPECT_EQ(answer_of(*faulty_engine.engine, one_request()).finish, FinishReason::error);
    EXPECT_EQ(answers_of(*faulty_engine.engine), expected);
    EXPECT_TRUE(faulty_engine.engine->drain(60s));
    EXPECT_GT(faulty_engine.engine->stats().eplb->plans_taken, 0);
  }
}

TEST(RankedRunner, AFailureNamesRankAndOperation) {
  FaultyEngine faulty_engine(1, 200s, [] { throw std::runtime_error("no memory"); });
  (void)answer_of(*faulty_engine.engine, one_request());
  const auto seen = failure_of(faulty_engine);
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
    EXPECT_EQ(answer_once_it_is_back(faulty_engine).ids, right_answer());
  }
}

}  // namespace
}  // namespace fathom::engine
