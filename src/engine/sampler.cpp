#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/expect.h"
#include "core/gumbel.h"
#include "core/rng.h"

namespace fathom::engine {
namespace {

using model::TokenId;

// Uniform in (0, 1), with 53 random bits.
double uniform(uint64_t seed, int64_t position) {
  const auto at       = static_cast<uint64_t>(position);
  const auto bits     = philox({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t word = uint64_t{bits[1]} << 32 | bits[0];
  return (static_cast<double>(word >> 11) + 0.5) * 0x1p-53;
}

// High word: the float's bits, mapped to an unsigned number in the same order, -0 as 0. Low word: the
// complement of the id.
uint64_t rank_of(float logit, TokenId id) {
  const auto bits     = __builtin_bit_cast(uint32_t, logit + 0.0f);
  const uint32_t word = bits >> 31 ? ~bits : bits | 0x80000000u;
  return uint64_t{word} << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}

TokenId id_of(uint64_t rank) { return static_cast<TokenId>(0xffffffffu - static_cast<uint32_t>(rank)); }

// The lowest id of the largest logit. Fails where the logits are no distribution.
Result<TokenId> most_likely(std::span<const float> logits) {
  float max_logit = -INFINITY;
  TokenId best    = -1;
  for (size_t i = 0; i < logits.size(); ++i)
    if (!(logits[i] <= max_logit)) {  // larger, or NaN
      if (!(logits[i] < INFINITY))
        return Error{fmt::format(
            "the logit of token {} is {}: the weights are damaged or an op is wrong; `fathom model inspect` "
            "checks the weights",
            i, logits[i])};
      max_logit = logits[i];
      best      = static_cast<TokenId>(i);
    }
  if (best < 0)
    return Error{
        "no token may come next: every logit is -infinity; take back some logit bias or restriction"};
  return best;
}

double log_of_sum(std::span<const float> logits, float max_logit) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max_logit);
  return max_logit + std::log(sum);
}

}  // namespace

Status check(const SamplingParameters& p, int64_t vocab_size) {
  const auto want = [](bool good, const char* name, auto value, const char* what) -> Status {
    if (good) return Ok{};
    return Error{fmt::format("{} is {}, but must be {}", name, value, what)};
  };
  for (const Status& status :
       {want(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", p.temperature, "0 or more"),
        want(p.top_k >= 0, "top_k", p.top_k, "0, for all tokens, or more"),
        want(p.top_p > 0 && p.top_p <= 1, "top_p", p.top_p, "above 0 and at most 1"),
        want(p.min_p >= 0 && p.min_p <= 1, "min_p", p.min_p, "between 0 and 1"),
        want(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty), "repetition_penalty",
             p.repetition_penalty, "above 0; 1 is none"),
        want(std::isfinite(p.presence_penalty), "presence_penalty", p.presence_penalty, "a number"),
        want(std::isfinite(p.frequency_penalty), "frequency_penalty", p.frequency_penalty, "a number"),
        want(!p.logprobs || (*p.logprobs >= 0 && *p.logprobs <= vocab_size), "logprobs",
             p.logprobs.value_or(0), "between 0 and the size of the vocabulary")})
    if (!status) return status;
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || id >= vocab_size)
      return Error{fmt::format("logit_bias names token {}, but ids are 0 to {}", id, vocab_size - 1)};
    if (!(bias < INFINITY))
      return Error{fmt::format("the logit_bias of token {} is {}: give a number", id, bias)};
  }
  return Ok{};
}

Sampler::Sampler(int64_t vocab_size)
    : logits_(static_cast<size_t>(vocab_size)),
      counts_(static_cast<size_t>(vocab_size)),
      ranks_(2 * static_cast<size_t>(vocab_size)) {
  FATHOM_EXPECT(vocab_size > 0 && vocab_size <= std::numeric_limits<TokenId>::max(),
                "a sampler needs a vocabulary");
  candidates_.reserve(static_cast<size_t>(vocab_size));
}

std::span<const float> Sampler::processed(std::span<const float> logits, const SamplingParameters& p,
                                          std::span<const TokenId> prompt, std::span<const TokenId> output,
                                          const Restriction& restriction) {
  const bool penalties = p.presence_penalty != 0 || p.frequency_penalty != 0 || p.repetition_penalty != 1;
  if (!penalties && p.logit_bias.empty() && !restriction.constraint && restriction.banned.empty())
    return logits;
  std::copy(logits.begin(), logits.end(), logits_.begin());
  for (const auto& [id, bias] : p.logit_bias) logits_[static_cast<size_t>(id)] += bias;
  if (penalties) penalize(p, prompt, output);
  for (const TokenId id : restriction.banned) logits_[static_cast<size_t>(id)] = -INFINITY;
  if (restriction.constraint) restriction.constraint->mask_logits(logits_);
  return logits_;
}

void Sampler::penalize(const SamplingParameters& p, std::span<const TokenId> prompt,
                       std::span<const TokenId> output) {
  const auto repeat = [&](TokenId id) {
    float& logit = logits_[static_cast<size_t>(id)];
    logit = static_cast<float>(logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty);
  };
  constexpr int32_t kDone = -1;
  for (const TokenId id : output) ++counts_[static_cast<size_t>(id)];
  for (const TokenId id : output) {
    int32_t& count = counts_[static_cast<size_t>(id)];
    if (count == kDone) continue;
    repeat(id);
    logits_[static_cast<size_t>(id)] -= static_cast<float>(p.presence_penalty + p.frequency_penalty * count);
    count = kDone;
  }
  for (const TokenId id : prompt) {
    int32_t& count = counts_[static_cast<size_t>(id)];
    if (count == kDone) continue;
    repeat(id);
    count = kDone;
  }
  for (const auto& tokens : {prompt, output})
    for (const TokenId id : tokens) counts_[static_cast<size_t>(id)] = 0;
}

// The `count` largest ranks, in any order. Collects ranks at or above a threshold, and raises the threshold
// whenever twice the needed number has been collected, so that most tokens cost one comparison.
std::span<Sampler::Rank> Sampler::largest(std::span<const float> logits, int64_t count) {
  const auto first  = ranks_.begin();
  const size_t k    = static_cast<size_t>(count),
               room = std::max<size_t>(2 * k, std::min<size_t>(ranks_.size(), 256));
  size_t size       = 0;
  Rank threshold    = 0;
  if (k == 0) return {};
  const auto cut = [&] {
    std::nth_element(first, first + static_cast<int64_t>(k - 1), first + static_cast<int64_t>(size),
                     std::greater<>());
    size      = k;
    threshold = ranks_[k - 1];
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    const Rank rank = rank_of(logits[i], static_cast<TokenId>(i));
    if (rank < threshold) continue;
    ranks_[size++] = rank;
    if (size == room) cut();
  }
  if (size > k) cut();
  return {ranks_.data(), size};
}

// Sets candidates_ to the tokens of rank `from` and above, by id.
void Sampler::keep_from(std::span<const float> logits, Rank from, float max_logit, double temperature,
                        double min_weight) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (rank_of(logits[i], id) < from) continue;
    const double weight = std::exp((static_cast<double>(logits[i]) - max_logit) / temperature);
    if (weight >= min_weight) candidates_.push_back({id, weight});
  }
}

// The lowest rank that top_p keeps of candidates_: quickselect by weight, which halves the range at each
// step.
Sampler::Rank Sampler::nucleus(std::span<const float> logits, double top_p) {
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const double wanted = top_p * total;

  // Drops tokens so light that all of them together cannot matter.
  const double negligible = (total - wanted) / static_cast<double>(candidates_.size());
  auto& kept              = candidates_;
  std::erase_if(kept, [&](const Candidate& candidate) { return candidate.weight < negligible; });

  const auto rank   = [&](const Candidate& c) { return rank_of(logits[static_cast<size_t>(c.id)], c.id); };
  const auto before = [&](const Candidate& a, const Candidate& b) { return rank(a) > rank(b); };
  auto first = kept.begin(), last = kept.end();
  double weight = 0;  // of the candidates before `first`, which are all kept
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, before);
    double half = 0;
    for (auto candidate = first; candidate != middle; ++candidate) half += candidate->weight;
    if (weight + half >= wanted) {
      last = middle;
    } else {
      weight += half;
      first = middle;
    }
  }
  return rank(*first);
}

TokenId Sampler::draw(std::span<const float> logits, const SamplingParameters& p, float max_logit,
                      int64_t position) {
  const auto vocab_size = static_cast<int64_t>(logits.size());
  if (draws_from_all(p, vocab_size))
    return static_cast<TokenId>(gumbel_argmax(logits, p.temperature, p.seed, position));
  Rank from = 0;
  if (p.top_k > 0 && p.top_k < vocab_size) {
    const auto ranks = largest(logits, p.top_k);
    from             = *std::min_element(ranks.begin(), ranks.end());
  }
  if (p.top_p < 1) {
    keep_from(logits, from, max_logit, p.temperature, 0);
    from = nucleus(logits, p.top_p);
  }
  keep_from(logits, from, max_logit, p.temperature, p.min_p);

  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double left       = uniform(p.seed, position) * total;
  TokenId last_seen = 0;
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight == 0) continue;
    last_seen = candidate.id;
    left -= candidate.weight;
    if (left < 0) break;
  }
  return last_seen;
}

Result<Sampled> Sampler::sample(std::span<const float> logits, const SamplingParameters& p,
                                std::span<const TokenId> prompt, std::span<const TokenId> output,
                                const Restriction& restriction) {
  FATHOM_EXPECT(logits.size() == logits_.size(), "as many logits as the vocabulary has tokens");
  const auto raw_most = most_likely(logits);
  if (!raw_most) return raw_most.error();

  const auto now  = processed(logits, p, prompt, output, restriction);
  const auto most = now.data() == logits.data() ? raw_most : most_likely(now);
  if (!most) return most.error();
  Sampled sampled{.id = *most};
  if (p.temperature > 0)
    sampled.id =
        draw(now, p, now[static_cast<size_t>(*most)], static_cast<int64_t>(prompt.size() + output.size()));

  if (p.logprobs) {
    const double sum   = log_of_sum(logits, logits[static_cast<size_t>(*raw_most)]);
    const auto logprob = [&](TokenId id) { return logits[static_cast<size_t>(id)] - sum; };
    sampled.logprob    = logprob(sampled.id);
    const auto ranks   = largest(logits, *p.logprobs);
    std::sort(ranks.begin(), ranks.end(), std::greater<>());
    for (const Rank rank : ranks) sampled.top.push_back({id_of(rank), logprob(id_of(rank))});
  }
  return sampled;
}

}  // namespace fathom::engine
