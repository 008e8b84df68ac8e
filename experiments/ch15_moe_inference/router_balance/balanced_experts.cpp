#include "balanced_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/expert_placement.h"

namespace fathom::lab::router_balance {
namespace {

using moe::kExperts;

// A token's own preferences, and Zipf's law of slope 1 over kByPopularity: some experts are liked by all.
void fill_logits(float* logits, int64_t n, uint64_t seed) {
  fill_normal(logits, n, seed, 0, 1.5);
  for (int64_t i = 0; i < n; i += kExperts)
    for (size_t p = 0; p < kExperts; ++p)
      logits[i + moe::kByPopularity[p]] -= std::log(static_cast<float>(p + 1));
}

// Steps of the same router before those that are timed.
constexpr uint64_t kTrainingSeed = 0xBA1A'0000;
void fill_training(float* logits, int64_t n, uint64_t step) { fill_logits(logits, n, kTrainingSeed + step); }

Training training(const BalancedExperts& p) {
  return {.tokens = 512, .experts = kExperts, .top_k = p.top_k(), .steps = 250};
}

float score(const BalancedExperts& p, int64_t t, int64_t e) {
  return p.logits(t, e) + p.noise_scale(0) * p.noise(t, e) + p.router_bias(e);
}

// The softmax over the scores of `experts` of a token.
std::vector<double> weights(const BalancedExperts& p, int64_t t, const std::vector<int64_t>& experts) {
  std::vector<double> w;
  for (const int64_t e : experts) w.push_back(std::exp(static_cast<double>(score(p, t, e))));
  const double sum = std::accumulate(w.begin(), w.end(), 0.0);
  for (double& x : w) x /= sum;
  return w;
}

// A token's experts in the order of what it selects by.
std::vector<int64_t> order_of(const BalancedExperts& p, int64_t t, bool by_logits_alone) {
  std::vector<int64_t> order(kExperts);
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int64_t e) {
    return by_logits_alone ? p.logits(t, e) : score(p, t, e) + p.selection_bias(e);
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) > key(b); });
  order.resize(static_cast<size_t>(p.top_k()));
  return order;
}

struct Chosen {
  std::vector<int64_t> experts;  // T x top_k
  std::vector<double> gates;
};

// Another way to say what the steps do.
Chosen reference_choice(const BalancedExperts& p) {
  const auto T = static_cast<size_t>(p.tokens()), K = static_cast<size_t>(p.top_k());
  Chosen chosen{std::vector<int64_t>(T * K), std::vector<double>(T * K)};
  for (size_t t = 0; t < T; ++t) {
    const auto experts = order_of(p, static_cast<int64_t>(t), false);
    const auto gates   = weights(p, static_cast<int64_t>(t), experts);
    std::copy(experts.begin(), experts.end(), &chosen.experts[t * K]);
    std::copy(gates.begin(), gates.end(), &chosen.gates[t * K]);
  }
  if (static_cast<Overflow>(p.overflow(0)) == Overflow::none) return chosen;
  std::vector<int64_t> room(kExperts, p.capacity);
  for (size_t k = 0; k < K; ++k)
    for (size_t t = 0; t < T; ++t) {
      int64_t& e = chosen.experts[t * K + k];
      if (room[static_cast<size_t>(e)]-- > 0) continue;
      e                       = -1;
      chosen.gates[t * K + k] = 0;
    }
  return chosen;
}

}  // namespace

BalancedExperts::BalancedExperts(const Point& at, Arena& arena, const Rank& rank)
    : ExpertRanks(rank, arena, at["tokens"], at["top_k"]),
      logits(arena.input<float>({tokens(), kExperts}, generate<float>(fill_logits))),
      noise(arena.input<float>({tokens(), kExperts}, Normal{})),
      chosen(arena.output<int32_t>({tokens(), top_k()})),
      gates(arena.output<float>({tokens(), top_k()})),
      scores(arena.workspace<float>({tokens(), kExperts})),
      selection(arena.workspace<float>({tokens(), kExperts})),
      router_bias(arena.workspace<float>({kExperts})),
      selection_bias(arena.workspace<float>({kExperts})),
      noise_scale(arena.workspace<float>({1})),
      overflow(arena.workspace<int32_t>({1})),
      capacity(capacity_factor::capacity_of(kCapacityFactor, tokens(), top_k(), kExperts)) {}

void BalancedExperts::check(Checker& checker, const AllRanks<BalancedExperts>&) const {
  const Chosen want = reference_choice(*this);
  const auto at     = [&](int64_t t, int64_t k) { return static_cast<size_t>(t * top_k() + k); };
  checker.values("chosen", chosen, [&](int64_t t, int64_t k) { return want.experts[at(t, k)]; });
  checker.values("gates", gates, [&](int64_t t, int64_t k) {
    // exp() of a difference of scores: its error grows with their size, below 32.
    return Sum{.value = want.gates[at(t, k)], .magnitude = 32 * want.gates[at(t, k)], .length = top_k() + 4};
  });
  check_out(
      checker, [&](int64_t t, int64_t k) { return chosen(t, k); },
      [&](int64_t t, int64_t k) { return gates(t, k); });
}

void BalancedExperts::metrics(CallMetrics& metrics) const {
  std::vector<int64_t> load(kExperts, 0);
  int64_t dropped = 0, moved = 0;
  for (int64_t t = 0; t < tokens(); ++t) {
    const std::vector<int64_t> first = order_of(*this, t, true);
    for (int64_t k = 0; k < top_k(); ++k) {
      const int32_t e = chosen(t, k);
      dropped += e < 0;
      if (e < 0) continue;
      ++load[static_cast<size_t>(e)];
      moved += std::find(first.begin(), first.end(), e) == first.end();
    }
  }
  const auto all    = static_cast<double>(std::max<int64_t>(1, slots()));
  const double mean = static_cast<double>(slots() - dropped) / kExperts;
  double variance   = 0;
  for (const int64_t l : load)
    variance += (static_cast<double>(l) - mean) * (static_cast<double>(l) - mean) / kExperts;
  metrics["dropped_share"]        = {static_cast<double>(dropped) / all, "lower"};
  metrics["moved_share"]          = {static_cast<double>(moved) / all, "lower"};
  metrics["rank_imbalance"]       = {rank_imbalance(), "lower"};
  metrics["expert_load_variance"] = {mean > 0 ? variance / (mean * mean) : 0, "lower"};  // of load over mean
  for (int64_t e = 0; e < kExperts; ++e)
    metrics[fmt::format("tokens_of_expert_{:02}", e)] = {static_cast<double>(load[static_cast<size_t>(e)]),
                                                         "lower"};
}

Step step_by(Policy policy) {
  // Looked up, not planned: expert e on rank e mod 2.
  const auto placement = engine::round_robin_placement(kExperts, kRanks);
  return [policy = std::move(policy), ranks_of = engine::ranks_of_experts(placement, kExperts)](
             const BalancedExperts& p, Context& context) {
    const Rank& me = *context.rank;
    std::copy(policy.router_bias.begin(), policy.router_bias.end(), p.router_bias.data());
    std::copy(policy.selection_bias.begin(), policy.selection_bias.end(), p.selection_bias.data());
    p.noise_scale(0) = policy.noise;
    p.overflow(0)    = static_cast<int32_t>(policy.overflow);
    for (int64_t t = 0; t < p.tokens(); ++t)
      for (int64_t e = 0; e < kExperts; ++e) {
        p.scores(t, e)    = score(p, t, e);
        p.selection(t, e) = p.scores(t, e) + p.selection_bias(e);
      }
    capacity_factor::route(p.selection, policy.overflow, p.capacity, p.chosen, p.gates);
    // route() weighs by what it selects by. No policy here has both a selection bias and a capacity, whose
    // dropped slots would belong to the sum.
    for (int64_t t = 0; t < p.tokens() && policy.overflow == Overflow::none; ++t) {
      float sum = 0;
      for (int64_t k = 0; k < p.top_k(); ++k)
        sum += p.gates(t, k) = std::exp(p.scores(t, p.chosen(t, k)) - p.scores(t, p.chosen(t, 0)));
      for (int64_t k = 0; k < p.top_k(); ++k) p.gates(t, k) /= sum;
    }
    moe::compute_slots(p, me, p.chosen.data(), ranks_of);
    moe::combine(p, p.chosen.data(), p.gates.data(), moe::outbox(me, me.rank()).results);
  };
}

std::vector<float> trained_biases(const BalancedExperts& p) {
  return train_biases(training(p), fill_training);
}

std::vector<float> adapted_biases(const BalancedExperts& p) {
  return adapt_selection_biases(training(p), fill_training);
}

}  // namespace fathom::lab::router_balance
