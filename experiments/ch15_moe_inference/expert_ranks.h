// A Mixture-of-Experts layer on several ranks (expert parallelism), each a process with a core of its own:
// every rank has its own tokens, and an expert is computed on a rank that holds it. 16 experts of 256 x 256 x
// 256, fp32, as in expert_layer.h.
//   out(t, .) = sum_k gate(t, k) relu(x(t, .) W1[e]) W2[e],   e = expert(t, k)
// Ranks share memory for their messages and nothing else, as GPUs do that map each other's memory.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "core/rng.h"
#include "experiments/ch15_moe_inference/expert_layer.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::moe {

constexpr int64_t kMostSlots = 2048;  // of a rank: tokens times top_k

template <class T>
using Filler = std::function<void(T* data, int64_t elements, uint64_t seed)>;

struct ExpertRanks {
  View<const float, 2> x;  // T x kModel
  // kExperts x kMatrix each, packed in panels. Every rank has a copy of the checkpoint and reads only the
  // experts that it holds.
  View<const float, 2> w1, w2;
  View<float, 2> out;                       // T x kModel
  View<float, 2> gathered, hidden, result;  // workspace, a row for each slot of all ranks
  View<int32_t, 1> sources;                 // workspace: slots, grouped by expert
  View<int64_t, 1> rows;                    // rows that each rank computed in the step
  View<uint64_t, 1> nonces;

  ExpertRanks(const Rank& rank, Arena& arena, int64_t tokens, int64_t top_k)
      : x(arena.input<float>({tokens, kModel}, Normal{})),
        w1(arena.input<float>({kExperts, kMatrix}, generate<float>(checkpoint(1)))),
        w2(arena.input<float>({kExperts, kMatrix}, generate<float>(checkpoint(2)))),
        out(arena.output<float>({tokens, kModel})),
        gathered(arena.workspace<float>({rank.size() * tokens * top_k, kModel})),
        hidden(arena.workspace<float>({rank.size() * tokens * top_k, kHidden})),
        result(arena.workspace<float>({rank.size() * tokens * top_k, kModel})),
        sources(arena.workspace<int32_t>({rank.size() * tokens * top_k})),
        rows(arena.workspace<int64_t>({rank.size()})),
        nonces(arena.workspace<uint64_t>({1})),
        top_k_(top_k) {
    FATHOM_EXPECT(tokens * top_k <= kMostSlots, "a rank's tokens choose at most 2048 experts altogether");
  }

  int64_t tokens() const { return x.extent(0); }
  int64_t top_k() const { return top_k_; }
  int64_t slots() const { return tokens() * top_k_; }  // of a rank: slot t top_k + k

  // The even share of a rank. Weights count in full: nearly every expert has tokens.
  Cost cost() const {
    const auto flops = static_cast<double>(slots()) * (4 * kMatrix + 2 * kModel);
    return {.read = x.bytes() + (w1.bytes() + w2.bytes()) / 2, .written = out.bytes(), .flops = flops};
  }
  uint64_t nonce_sum(Context&) const { return nonces(0); }

  // `expert(t, k)`: -1 where the slot is not computed. `gate(t, k)`: its weight.
  template <class Expert, class Gate>
  void check_out(Checker& checker, const Expert& expert, const Gate& gate) const {
    struct Unit {
      double value, magnitude;
    };
    std::vector<std::vector<Unit>> units(static_cast<size_t>(tokens()));  // of a token, top_k x kHidden
    const auto hidden_units = [&](int64_t t) -> const std::vector<Unit>& {
      auto& of = units[static_cast<size_t>(t)];
      if (!of.empty()) return of;
      for (int64_t k = 0; k < top_k(); ++k)
        for (int64_t h = 0; h < kHidden; ++h) {
          Unit unit{};
          const int64_t e = expert(t, k);
          for (int64_t m = 0; e >= 0 && m < kModel; ++m) {
            const double product =
                static_cast<double>(x(t, m)) * w1(e, (h / kPanel * kModel + m) * kPanel + h % kPanel);
            unit.value += product;
            unit.magnitude += std::abs(product);
          }
          of.push_back({std::max(0.0, unit.value), unit.magnitude});
        }
      return of;
    };
    checker.values("out", out, [&](int64_t t, int64_t m) {
      const auto& of = hidden_units(t);
      Sum sum{.length = kModel + kHidden + top_k()};
      for (int64_t k = 0; k < top_k(); ++k) {
        const int64_t e = expert(t, k);
        for (int64_t h = 0; e >= 0 && h < kHidden; ++h) {
          const Unit& unit = of[static_cast<size_t>(k * kHidden + h)];
          const double weight =
              static_cast<double>(gate(t, k)) * w2(e, (m / kPanel * kHidden + h) * kPanel + m % kPanel);
          sum.value += unit.value * weight;
          sum.magnitude += unit.magnitude * std::abs(weight);
        }
      }
      return sum;
    });
  }

  // The most loaded rank's rows over the mean.
  double rank_imbalance() const {
    int64_t most = 0, sum = 0;
    for (int64_t r = 0; r < rows.size(); ++r) {
      most = std::max(most, rows(r));
      sum += rows(r);
    }
    return sum == 0 ? 1 : static_cast<double>(most * rows.size()) / static_cast<double>(sum);
  }

 private:
  // Of a seed of its own, so that all ranks have the same weights; deviations as in expert_layer.h.
  static Filler<float> checkpoint(uint64_t matrix) {
    return [matrix](float* w, int64_t n, uint64_t) {
      fill_normal(w, n, 0xC0FFEE + matrix, 0, 1 / std::sqrt(double{kModel}));
    };
  }

  int64_t top_k_;
};
static_assert(kModel == kHidden);

// [popularity]: an expert. Which experts are hot is a property of the model, so it is the same in every step.
// Of all orders this one is ordinary: experts dealt to two ranks in turn are as uneven as the median of 4000
// random orders has it, for slopes of 1, 1.5 and 2 (1.25, 1.43, 1.58 with one expert a token).
inline constexpr std::array<int32_t, kExperts> kByPopularity = {12, 5,  2,  6, 14, 3, 10, 1,
                                                                7,  13, 15, 9, 11, 0, 8,  4};

// Tokens that choose experts by a Zipf law of that slope: the p-th most popular one in proportion to 1 /
// (p + 1)^slope.
struct ZipfTokens : ExpertRanks {
  View<const int32_t, 2> expert;  // T x top_k; a token's are all different
  View<const float, 2> gate;      // T x top_k; a token's sum is 1

  ZipfTokens(const Rank& rank, Arena& arena, int64_t tokens, int64_t top_k, double slope)
      : ExpertRanks(rank, arena, tokens, top_k),
        expert(arena.input<int32_t>({tokens, top_k}, generate<int32_t>(router(top_k, slope)))),
        gate(arena.input<float>({tokens, top_k}, generate<float>(weights(top_k)))) {}

  template <class P>
  void check(Checker& checker, const AllRanks<P>&) const {
    check_out(
        checker, [&](int64_t t, int64_t k) { return expert(t, k); },
        [&](int64_t t, int64_t k) { return gate(t, k); });
  }

 private:
  static Filler<int32_t> router(int64_t top_k, double slope) {
    return [top_k, slope](int32_t* experts, int64_t n, uint64_t seed) {
      std::array<double, kExperts> below{};  // sums of the law
      double sum = 0;
      for (size_t p = 0; p < kExperts; ++p) below[p] = sum += std::pow(static_cast<double>(p + 1), -slope);
      // A draw that a token has already is drawn again; after 64 of them the next expert is taken.
      constexpr int64_t kDraws = 64;
      std::array<double, kDraws> draws{};
      for (int64_t i = 0; i < n; ++i) {
        int32_t* const token = experts + i / top_k * top_k;
        const auto taken     = [&](int32_t e) { return std::find(token, experts + i, e) != experts + i; };
        fill_uniform(draws.data(), kDraws, seed, 0, sum, i * kDraws);
        int32_t e = 0;
        for (const double draw : draws) {
          const auto p = std::upper_bound(below.begin(), below.end() - 1, draw) - below.begin();
          e            = kByPopularity[static_cast<size_t>(p)];
          if (!taken(e)) break;
        }
        while (taken(e)) e = (e + 1) % static_cast<int32_t>(kExperts);
        experts[i] = e;
      }
    };
  }
  static Filler<float> weights(int64_t top_k) {
    return [top_k](float* gates, int64_t n, uint64_t seed) {
      fill_uniform(gates, n, seed, 0.25, 0.75);
      for (int64_t i = 0; i + top_k <= n; i += top_k) {
        float sum = 0;
        for (int64_t k = 0; k < top_k; ++k) sum += gates[i + k];
        for (int64_t k = 0; k < top_k; ++k) gates[i + k] /= sum;
      }
    };
  }
};

// Where a rank leaves its tokens for the ranks that hold their experts, and where those leave the results.
struct Outbox {
  uint64_t* nonce;
  int64_t* load;     // kExperts: what a load balancer exchanges
  int32_t* experts;  // of each slot; -1: nobody computes it
  float* x;          // a row for each token
  float* results;    // a row for each slot
};
constexpr int64_t kHeaderBytes = 64 + kExperts * int64_t{sizeof(int64_t)};
constexpr int64_t kRowsBytes   = kMostSlots * kModel * int64_t{sizeof(float)};
constexpr int64_t kOutboxBytes = kHeaderBytes + kMostSlots * int64_t{sizeof(int32_t)} + 2 * kRowsBytes;
Outbox outbox(const Rank& me, int rank);

// What a load balancer sees: slots of each expert, on all ranks.
std::vector<int64_t> observed_load(const int32_t* experts, int64_t slots, const Rank& me);

// One step of all ranks up to the results of this rank's slots, which lie in its outbox; fills p.rows and
// p.nonces. The ranks that hold an expert take its rows in turn. A rank reads tokens where their owners left
// them and writes results where owners find them. Two barriers, those of every expert-parallel layer: tokens
// have arrived, results have arrived.
using RanksOfExperts = std::vector<std::vector<int32_t>>;
void compute_slots(const ExpertRanks& p, const Rank& me, const int32_t* experts,
                   const RanksOfExperts& ranks_of);

// y[i] = relu(x[i] W1[e]) W2[e], e = experts[i]: rows wherever they lie, grouped by expert; at most as many
// as there are slots of all ranks. Uses the workspace.
void compute_rows(const ExpertRanks& p, std::span<const int32_t> experts, std::span<const float* const> x,
                  std::span<float* const> y);

// out(t) = sum_k gate(t, k) results(t top_k + k), over slots that were computed, in the order of k: the same
// bits wherever a row was computed.
void combine(const ExpertRanks& p, const int32_t* experts, const float* gates, const float* results);

}  // namespace fathom::lab::moe
