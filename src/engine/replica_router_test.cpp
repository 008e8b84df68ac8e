#include "engine/replica_router.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "core/rng.h"

namespace fathom::engine {
namespace {

using model::TokenId;

// A generator that yields output when the test calls emit() or end(), on the caller's thread.
class ByHand final : public Generator {
 public:
  std::variant<RequestId, Refusal> submit(Request request, Listener listener) override {
    if (draining) return Refusal{Refusal::Reason::stopping, "this one stops"};
    if (full) return Refusal{Refusal::Reason::queue_full, "this one is full"};
    prompts.push_back(request.prompt);
    listeners[++last] = std::move(listener);
    return last;
  }
  void cancel(RequestId id, FinishReason) override {
    cancelled.push_back(id);
    if (listeners.contains(id)) end(id, FinishReason::cancelled);
  }
  GeneratorStats stats() const override {
    GeneratorStats stats{.running = static_cast<int64_t>(listeners.size()), .steps = 10, .forward_s = 0.5};
    stats.finished[1]      = 3;
    stats.steps_by_rows[2] = 7;
    stats.memory           = {.weights = 100, .kv_cache = 20, .workspace = 3};
    stats.router_imbalance = imbalance;
    stats.eplb             = eplb;
    return stats;
  }
  int64_t max_context() const override { return context; }
  bool drain(std::chrono::nanoseconds) override {
    draining = true;
    return listeners.empty();
  }

  void emit(RequestId id, int64_t tokens) {
    const std::vector<Sampled> all(static_cast<size_t>(tokens), Sampled{.id = 7});
    listeners.at(id)({.tokens = all});
  }
  void end(RequestId id, FinishReason reason = FinishReason::length, int64_t tokens = 0) {
    const std::vector<Sampled> all(static_cast<size_t>(tokens), Sampled{.id = 7});
    const Listener listener = listeners.at(id);
    listeners.erase(id);
    listener({.tokens = all, .finish = reason});
  }

  std::map<RequestId, Listener> listeners;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<RequestId> cancelled;
  RequestId last = 100;  // so that its ids differ from the router's
  bool draining = false, full = false;
  int64_t context = 1000;
  std::optional<double> imbalance;
  std::optional<EplbStats> eplb;
};

// Assigns the fields, because g++ 12 reports fields missing from an initialiser as uninitialised.
Request request_of(std::vector<TokenId> prompt, int64_t max_tokens, std::string salt) {
  Request request;
  request.prompt     = std::move(prompt);
  request.max_tokens = max_tokens;
  request.cache_salt = std::move(salt);
  return request;
}

struct Routed {
  explicit Routed(const ReplicaRouter::Options& options, int replicas = 2) {
    std::vector<std::unique_ptr<Generator>> owned;
    for (int r = 0; r < replicas; ++r) {
      owned.push_back(std::make_unique<ByHand>());
      at.push_back(static_cast<ByHand*>(owned.back().get()));
    }
    router = std::make_unique<ReplicaRouter>(std::move(owned), options);
  }
  // Returns the replica that got the request.
  size_t ask(std::vector<TokenId> prompt, int64_t max_tokens = 1, const std::string& salt = "") {
    const std::vector<int64_t> before = router->routed();
    const auto taken                  = router->submit(request_of(std::move(prompt), max_tokens, salt),
                                                       [this](const RequestOutput& progress) {
                                        tokens += static_cast<int64_t>(progress.tokens.size());
                                        if (progress.finish) ends.push_back(*progress.finish);
                                      });
    EXPECT_TRUE(std::holds_alternative<RequestId>(taken));
    last                             = std::get<RequestId>(taken);
    const std::vector<int64_t> after = router->routed();
    for (size_t r = 0; r < after.size(); ++r)
      if (after[r] != before[r]) return r;
    return after.size();
  }

  std::vector<ByHand*> at;
  std::unique_ptr<ReplicaRouter> router;
  RequestId last = 0;
  int64_t tokens = 0;
  std::vector<FinishReason> ends;
};

std::vector<TokenId> random_prompt(int64_t tokens, uint64_t seed) {
  std::vector<TokenId> prompt(static_cast<size_t>(tokens));
  fill_integers(prompt.data(), tokens, seed, 0, 1000);
  return prompt;
}

constexpr ReplicaRouter::Options kTurns{.policy = ReplicaRouter::Policy::round_robin};
constexpr ReplicaRouter::Options kCost{.token_cost = 2, .page_size = 4};

TEST(ReplicaRouter, RoundRobinIgnoresWork) {
  Routed routed(kTurns, 3);
  std::vector<size_t> got;
  for (int i = 0; i < 7; ++i) got.push_back(routed.ask(random_prompt(i == 0 ? 900 : 1, 1)));
  EXPECT_EQ(got, (std::vector<size_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(ReplicaRouter, PrefersTheLeastWork) {
  Routed routed(kCost);
  EXPECT_EQ(routed.ask(random_prompt(100, 1)), 0u);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(routed.ask(random_prompt(9, 2 + i)), 1u) << i;  // 11 rows each
  EXPECT_EQ(routed.ask(random_prompt(9, 20)), 1u);                                      // 102 against 99
  EXPECT_EQ(routed.ask(random_prompt(9, 21)), 0u);
}

TEST(ReplicaRouter, TokensReduceWork) {
  Routed routed(kCost);
  EXPECT_EQ(routed.ask(random_prompt(50, 1), 20), 0u);  // 50 + 2 x 20
  EXPECT_EQ(routed.ask(random_prompt(30, 2), 20), 1u);  // 30 + 2 x 20
  EXPECT_EQ(routed.ask(random_prompt(5, 3), 1), 1u);    // 77 now
  routed.at[0]->emit(101, 1);                           // the prompt is done: 38
  EXPECT_EQ(routed.ask(random_prompt(30, 4), 1), 0u);   // 70
  EXPECT_EQ(routed.ask(random_prompt(1, 5), 1), 0u);    // 73
  routed.at[1]->emit(101, 3);                           // 34 + 7
  EXPECT_EQ(routed.ask(random_prompt(1, 6), 1), 1u);
  routed.at[0]->end(101, FinishReason::stop);  // the estimate of its unused tokens is dropped: 35
  EXPECT_EQ(routed.ask(random_prompt(1, 7), 1), 0u);
}

TEST(ReplicaRouter, EstimatesOutputLengthsByTheirMean) {
  Routed routed(kCost);
  routed.ask(random_prompt(1, 1), 100);
  routed.at[0]->emit(101, 4);
  routed.at[0]->end(101, FinishReason::stop, 1);         // five tokens
  EXPECT_EQ(routed.ask(random_prompt(10, 2), 100), 1u);  // its turn; 10 + 2 x 5, not 2 x 100
  EXPECT_EQ(routed.ask(random_prompt(12, 3), 1), 0u);    // 12 + 2
  EXPECT_EQ(routed.ask(random_prompt(10, 4), 100), 0u);  // 14 against 20
  EXPECT_EQ(routed.ask(random_prompt(10, 5), 100), 1u);  // 34 against 20
  routed.at[1]->end(101, FinishReason::cancelled);       // does not count as an output length
  routed.at[1]->end(102, FinishReason::error);
  EXPECT_EQ(routed.ask(random_prompt(10, 6), 100), 1u);
  EXPECT_EQ(routed.ask(random_prompt(13, 7), 100), 1u);  // 20 against 34
}

TEST(ReplicaRouter, PrefersTheReplicaThatCachesThePrefix) {
  Routed routed(kCost);
  const std::vector<TokenId> prefix = random_prompt(40, 1);
  const auto with                   = [&](uint64_t seed) {
    std::vector<TokenId> prompt = prefix;
    const auto rest             = random_prompt(6, seed);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    return prompt;
  };
  EXPECT_EQ(routed.ask(with(2)), 0u);                   // 46 + 2
  EXPECT_EQ(routed.ask(random_prompt(20, 3)), 1u);      // 22
  EXPECT_EQ(routed.ask(with(4)), 0u);                   // 48 - 40 against 22
  EXPECT_EQ(routed.ask(with(5)), 0u);                   // 56 - 40 against 22: 64
  EXPECT_EQ(routed.ask(with(6)), 1u);                   // 64 - 40 against 22: now both cache it
  EXPECT_EQ(routed.ask(with(7), 1, "somebody's"), 0u);  // another salt shares no prefix: 64 against 70
  EXPECT_EQ(routed.ask({prefix.begin(), prefix.end() - 1}), 1u);  // all but the last block is enough
}

TEST(ReplicaRouter, PrefixCacheEvictsLeastRecentlyUsed) {
  ApproxPrefixCache cache(4);
  cache.insert({1, 2, 3});
  EXPECT_EQ(cache.match({1, 2, 3, 4}), 3);
  EXPECT_EQ(cache.match({1, 9, 3}), 1);
  EXPECT_EQ(cache.match({}), 0);
  cache.insert({5, 6});  // evicts 3, the last of its chain
  EXPECT_EQ(cache.match({1, 2, 3}), 2);
  cache.insert({1});
  cache.insert({7});  // evicts 2
  EXPECT_EQ(cache.match({1, 2}), 1);
  EXPECT_EQ(cache.match({5, 6}), 2);
  cache.insert({11, 12, 13, 14, 15, 16});  // more blocks than the capacity: the first ones stay
  EXPECT_EQ(cache.match({11, 12, 13, 14, 15, 16}), 4);
  EXPECT_EQ(cache.match({1}), 0);
}

TEST(ReplicaRouter, AClosedReplicaOpensAtTheLowerThreshold) {
  ReplicaRouter::Options options = kCost;
  options.close_above            = 60;
  options.open_below             = 20;
  Routed routed(options);
  const std::vector<TokenId> prefix = random_prompt(81, 1);
  EXPECT_EQ(routed.ask(prefix), 0u);  // 83: closed, whatever prefix it caches
  EXPECT_EQ(routed.ask(random_prompt(10, 2)), 1u);
  EXPECT_EQ(routed.ask(prefix), 1u);  // 12 + 83: both are closed, so cost decides again
  EXPECT_EQ(routed.ask(random_prompt(8, 3)), 0u);
  routed.at[0]->end(101);                           // 10: open
  EXPECT_EQ(routed.ask(random_prompt(40, 4)), 0u);  // 52: still open
  routed.at[1]->end(102);                           // 12: open
  EXPECT_EQ(routed.ask(random_prompt(30, 5)), 1u);  // 44
  EXPECT_EQ(routed.ask(random_prompt(30, 6)), 1u);  // 76: closed
  routed.at[1]->end(104);                           // 44: between the thresholds, still closed
  EXPECT_EQ(routed.ask(random_prompt(1, 7)), 0u);   // 55 there
}

TEST(ReplicaRouter, ActsAsOneGenerator) {
  Routed routed(kTurns);
  routed.at[1]->context = 500;
  EXPECT_EQ(routed.router->max_context(), 500);
  routed.ask(random_prompt(3, 1), 5);
  const RequestId first = routed.last;
  routed.ask(random_prompt(3, 2), 5);
  EXPECT_NE(first, routed.last);
  routed.at[0]->emit(101, 2);
  routed.at[1]->emit(101, 3);
  EXPECT_EQ(routed.tokens, 5);
  EXPECT_EQ(routed.router->stats().running, 2);
  EXPECT_EQ(routed.router->stats().steps, 20);
  EXPECT_EQ(routed.router->stats().forward_s, 1);
  EXPECT_EQ(routed.router->stats().finished[1], 6);
  EXPECT_EQ(routed.router->stats().steps_by_rows[2], 14);
  EXPECT_EQ(routed.router->stats().memory.total(), 246);
  EXPECT_EQ(routed.router->stats().router_imbalance, std::nullopt);
  routed.at[1]->imbalance = 1.5;
  EXPECT_EQ(routed.router->stats().router_imbalance, 1.5);
  routed.at[0]->imbalance = 1.25;
  EXPECT_EQ(routed.router->stats().router_imbalance, 1.5);

  EXPECT_FALSE(routed.router->stats().eplb);
  routed.at[0]->eplb = {.plans_taken = 1, .experts_moved = 3, .seconds = 0.5, .balancedness = 0.5};
  EXPECT_EQ(routed.router->stats().eplb->balancedness, 0.5);
  routed.at[1]->eplb = {.plans_taken = 2, .experts_moved = 4, .seconds = 0.25, .balancedness = 0.75};
  EXPECT_EQ(routed.router->stats().eplb->plans_taken, 3);
  EXPECT_EQ(routed.router->stats().eplb->experts_moved, 7);
  EXPECT_EQ(routed.router->stats().eplb->seconds, 0.75);
  EXPECT_EQ(routed.router->stats().eplb->balancedness, 0.5);

  routed.router->cancel(9999);
  routed.at[0]->end(101);
  routed.router->cancel(first);  // it has ended
  EXPECT_TRUE(routed.at[0]->cancelled.empty());
  EXPECT_FALSE(routed.router->drain(std::chrono::nanoseconds(0)));
  EXPECT_TRUE(routed.at[0]->draining);
  const RequestId second = routed.last;
  std::thread([&] { routed.router->cancel(second); }).join();
  EXPECT_EQ(routed.at[1]->cancelled, std::vector<RequestId>{101});
  EXPECT_EQ(routed.ends, (std::vector<FinishReason>{FinishReason::length, FinishReason::cancelled}));
  EXPECT_TRUE(routed.router->drain(std::chrono::nanoseconds(0)));
}

TEST(ReplicaRouter, PassesOnRefusalsAtNoCost) {
  Routed routed(kCost);
  routed.at[0]->full = true;
  const auto taken =
      routed.router->submit(request_of(random_prompt(500, 1), 1, ""), [](const RequestOutput&) {});
  ASSERT_TRUE(std::holds_alternative<Refusal>(taken));
  EXPECT_EQ(std::get<Refusal>(taken).message, "this one is full");
  routed.at[0]->full = false;
  EXPECT_EQ(routed.ask(random_prompt(8, 2)), 0u);
}

}  // namespace
}  // namespace fathom::engine
