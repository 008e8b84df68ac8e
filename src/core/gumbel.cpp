#include "core/gumbel.h"

#include <algorithm>
#include <cmath>

#include "core/rng.h"

// Compiled with -O3 (CMakeLists.txt): the loop over counters vectorises.

namespace fathom {
namespace {

constexpr int kCounters = 16, kTokens = 4 * kCounters;  // of a block

PhiloxCounter words_of(uint64_t position, uint32_t use, uint64_t seed) {
  return philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), use, 0},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

// 1 - u
double rest_of(uint32_t word) { return (static_cast<double>(~word) + 0.5) * 0x1p-32; }
double gumbel_of(uint32_t word) { return -std::log(-std::log1p(-rest_of(word))); }

// Calls f(v, sum) in the order of v, with sum = (logit - most) / temperature + G, for those that may have at
// least `least`, which f may raise.
template <class F>
void each_that_may_reach(std::span<const float> logits, double most, double temperature, uint64_t seed,
                         int64_t position, int64_t first_id, const double& least, const F& f) {
  const auto V            = static_cast<int64_t>(logits.size());
  uint32_t words[kTokens] = {};
  for (int64_t first = 0; first < V; first += kTokens) {
    const int64_t count = std::min<int64_t>(kTokens, V - first);
    const float* here   = logits.data() + first;
    float most_here     = here[0];
    for (int64_t i = 1; i < count; ++i) most_here = std::max(most_here, here[i]);
    const double needed = least - (static_cast<double>(most_here) - most) / temperature;
    if (needed > static_cast<double>(kMostGumbel)) continue;
    for (int c = 0; c < kCounters; ++c) {
      const PhiloxCounter four =
          words_of(static_cast<uint64_t>(position),
                   1 + static_cast<uint32_t>((first_id + first) / 4) + static_cast<uint32_t>(c), seed);
      for (int w = 0; w < 4; ++w) words[4 * c + w] = four[static_cast<size_t>(w)];
    }
    // G <= -ln(1 - u), so that 1 - u <= e^-needed. A little more, for rounding.
    const double rest         = std::exp(-needed) * 1.000001 * 0x1p32;
    const uint32_t least_word = rest < 0x1p32 ? ~static_cast<uint32_t>(rest) : 0;
    for (int64_t i = 0; i < count; ++i)
      if (words[i] >= least_word)
        f(first_id + first + i, (static_cast<double>(here[i]) - most) / temperature + gumbel_of(words[i]));
  }
}

}  // namespace

double gumbel(uint64_t seed, int64_t position, int64_t v) {
  return gumbel_of(words_of(static_cast<uint64_t>(position), 1 + static_cast<uint32_t>(v / 4),
                            seed)[static_cast<size_t>(v % 4)]);
}

GumbelBest gumbel_best(std::span<const float> logits, double temperature, uint64_t seed, int64_t position,
                       int64_t first) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  const double most  = *largest;  // sums are relative to it: a tiny temperature overflows to -infinity
  GumbelBest best{.id = first + (largest - logits.begin())};
  best.sum = gumbel(seed, position, best.id);
  each_that_may_reach(logits, most, temperature, seed, position, first, best.sum, [&](int64_t v, double sum) {
    if (sum > best.sum || (sum == best.sum && v < best.id)) best = {v, sum};
  });
  best.sum += most / temperature;
  return best;
}

void gumbel_at_least(std::span<const float> logits, double temperature, uint64_t seed, int64_t position,
                     double least, std::vector<int64_t>& ids, int64_t first) {
  each_that_may_reach(logits, 0, temperature, seed, position, first, least, [&](int64_t v, double sum) {
    if (sum >= least) ids.push_back(v);
  });
}

}  // namespace fathom
