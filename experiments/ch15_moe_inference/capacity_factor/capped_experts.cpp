#include "capped_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/expert_placement.h"

namespace fathom::lab::capacity_factor {
namespace {

using moe::kExperts;
using moe::kModel;

// Zipf's law of slope 1 over kByPopularity, and Gumbel noise: the k largest logits of a token are k draws
// without replacement (Gumbel-top-k).
void fill_logits(float* logits, int64_t n, uint64_t seed) {
  fill_uniform(logits, n, seed, 1e-6, 1);
  for (int64_t i = 0; i < n; i += kExperts)
    for (size_t p = 0; p < kExperts; ++p) {
      float& logit = logits[i + moe::kByPopularity[p]];
      logit        = -std::log(-std::log(std::min(logit, 0.999999f))) - std::log(static_cast<float>(p + 1));
    }
}

struct Chosen {
  std::vector<int64_t> experts;  // T x top_k
  std::vector<double> gates;
};

// Another way to say what route() does: every token has its experts in the order of its logits.
Chosen reference_choice(const CappedExperts& p, Overflow overflow) {
  const auto T = static_cast<size_t>(p.tokens()), K = static_cast<size_t>(p.top_k());
  std::vector<std::vector<int64_t>> order(T);
  Chosen chosen{std::vector<int64_t>(T * K), std::vector<double>(T * K)};
  for (size_t t = 0; t < T; ++t) {
    order[t].resize(kExperts);
    std::iota(order[t].begin(), order[t].end(), 0);
    const auto logit = [&](int64_t e) { return p.logits(static_cast<int64_t>(t), e); };
    std::stable_sort(order[t].begin(), order[t].end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  }
  std::vector<int64_t> room(kExperts, overflow == Overflow::none ? p.slots() : p.capacity);
  for (size_t k = 0; k < K; ++k)
    for (size_t t = 0; t < T; ++t) {
      int64_t& e = chosen.experts[t * K + k] = order[t][k];
      const auto full = [&](int64_t expert) { return room[static_cast<size_t>(expert)] == 0; };
      if (full(e)) {
        e = -1;
        // The token's own choices come first in its order; what it took beyond them is in an earlier slot.
        for (size_t next = K; overflow == Overflow::next_choice && e < 0 && next < kExperts; ++next) {
          const int64_t candidate = order[t][next];
          const auto* begin       = &chosen.experts[t * K];
          if (!full(candidate) && std::find(begin, begin + k, candidate) == begin + k) e = candidate;
        }
      }
      if (e >= 0) --room[static_cast<size_t>(e)];
    }
  for (size_t t = 0; t < T; ++t) {
    const auto weight = [&](int64_t e) {
      return std::exp(static_cast<double>(p.logits(static_cast<int64_t>(t), e)));
    };
    double sum = 0;
    for (size_t k = 0; k < K; ++k) sum += weight(order[t][k]);
    for (size_t k = 0; k < K; ++k)
      if (const int64_t e = chosen.experts[t * K + k]; e >= 0) chosen.gates[t * K + k] = weight(e) / sum;
  }
  return chosen;
}

// out(t) in double.
std::vector<double> reference_row(const CappedExperts& p, int64_t t, const Chosen& chosen) {
  std::vector<double> row(kModel, 0);
  for (int64_t k = 0; k < p.top_k(); ++k) {
    const auto slot = static_cast<size_t>(t * p.top_k() + k);
    const int64_t e = chosen.experts[slot];
    for (int64_t h = 0; e >= 0 && h < moe::kHidden; ++h) {
      double unit = 0;
      for (int64_t m = 0; m < kModel; ++m)
        unit += static_cast<double>(p.x(t, m)) * p.w1(e, (h / kPanel * kModel + m) * kPanel + h % kPanel);
      for (int64_t m = 0; unit > 0 && m < kModel; ++m)
        row[static_cast<size_t>(m)] +=
            chosen.gates[slot] * unit * p.w2(e, (m / kPanel * moe::kHidden + h) * kPanel + m % kPanel);
    }
  }
  return row;
}

}  // namespace

CappedExperts::CappedExperts(const Point& at, Arena& arena, const Rank& rank)
    : ExpertRanks(rank, arena, at["tokens"], at["top_k"]),
      logits(arena.input<float>({tokens(), kExperts}, generate<float>(fill_logits))),
      chosen(arena.output<int32_t>({tokens(), top_k()})),
      gates(arena.output<float>({tokens(), top_k()})),
      overflow(arena.workspace<int32_t>({1})),
      capacity(capacity_of(at.real("capacity_factor"), tokens(), top_k(), kExperts)) {}

void CappedExperts::check(Checker& checker, const AllRanks<CappedExperts>&) const {
  const Chosen want = reference_choice(*this, static_cast<Overflow>(overflow(0)));
  const auto at     = [&](int64_t t, int64_t k) { return static_cast<size_t>(t * top_k() + k); };
  checker.values("chosen", chosen, [&](int64_t t, int64_t k) { return want.experts[at(t, k)]; });
  checker.values("gates", gates, [&](int64_t t, int64_t k) {
    // exp() of a difference of logits: its error grows with their size, below 32.
    return Sum{.value = want.gates[at(t, k)], .magnitude = 32 * want.gates[at(t, k)], .length = top_k() + 4};
  });
  check_out(
      checker, [&](int64_t t, int64_t k) { return chosen(t, k); },
      [&](int64_t t, int64_t k) { return gates(t, k); });
}

void CappedExperts::metrics(CallMetrics& metrics) const {
  const Chosen free = reference_choice(*this, Overflow::none);
  std::vector<int64_t> load(kExperts, 0);
  int64_t dropped = 0, moved = 0;
  for (int64_t s = 0; s < slots(); ++s) {
    const int32_t e = chosen.data()[s];
    if (e >= 0) ++load[static_cast<size_t>(e)];
    dropped += e < 0;
    moved += e >= 0 && e != free.experts[static_cast<size_t>(s)];
  }
  const auto all    = static_cast<double>(std::max<int64_t>(1, slots()));
  const double mean = static_cast<double>(slots() - dropped) / kExperts;
  double variance   = 0;
  for (const int64_t l : load)
    variance += (static_cast<double>(l) - mean) * (static_cast<double>(l) - mean) / kExperts;
  // Of 64 tokens: the distance to what the layer says without a capacity, and the length of that.
  double difference = 0, length = 0;
  const int64_t sample = std::min<int64_t>(tokens(), 64);
  for (int64_t i = 0; i < sample; ++i) {
    const int64_t t               = tokens() * i / sample;
    const std::vector<double> row = reference_row(*this, t, free);
    for (int64_t m = 0; m < kModel; ++m) {
      const double want = row[static_cast<size_t>(m)];
      difference += (out(t, m) - want) * (out(t, m) - want);
      length += want * want;
    }
  }
  metrics["dropped_share"]        = {static_cast<double>(dropped) / all, "lower"};
  metrics["moved_share"]          = {static_cast<double>(moved) / all, "lower"};
  metrics["rank_imbalance"]       = {rank_imbalance(), "lower"};
  metrics["expert_load_variance"] = {mean > 0 ? variance / (mean * mean) : 0, "lower"};  // of load over mean
  metrics["output_error"]         = {length > 0 ? std::sqrt(difference / length) : 0, "lower"};
  for (int64_t e = 0; e < kExperts; ++e)
    metrics[fmt::format("tokens_of_expert_{:02}", e)] = {static_cast<double>(load[static_cast<size_t>(e)]),
                                                         "lower"};
}

void step(const CappedExperts& p, Context& context, Overflow overflow) {
  const Rank& me = *context.rank;
  route(p.logits, overflow, p.capacity, p.chosen, p.gates);
  p.overflow(0) = static_cast<int32_t>(overflow);
  // Looked up, not planned: expert e on rank e mod 2.
  static const moe::RanksOfExperts ranks_of =
      engine::ranks_of_experts(engine::round_robin_placement(kExperts, kRanks), kExperts);
  moe::compute_slots(p, me, p.chosen.data(), ranks_of);
  moe::combine(p, p.chosen.data(), p.gates.data(), moe::outbox(me, me.rank()).results);
}

}  // namespace fathom::lab::capacity_factor
