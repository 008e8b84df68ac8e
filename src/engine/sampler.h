// Samples the next token from logits. The token is a function of the logits, the parameters and the token's
// position in its sequence: the same in any batch, on any thread, in any order.
//
// The order is that of vLLM and Hugging Face's generate: logit bias, penalties, temperature, top-k, top-p,
// min-p. Each filter works on the renormalised output of the one before. Greedy decoding stops after the
// penalties. Without a filter the token is the argmax of sums with Gumbel numbers (core/gumbel.h), which a
// GPU finds without all logits; with one, a random number is the place among the sums of the weights.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/constraint.h"
#include "model/tokenizer.h"

namespace fathom::engine {

struct SamplingParameters {
  double temperature = 1;  // 0: greedy, the lowest id where logits are equal
  int64_t top_k      = 0;  // keeps the k most likely tokens, of equal ones the lower ids; 0: all
  double top_p       = 1;  // keeps the fewest most likely tokens whose probabilities sum to this
  double min_p       = 0;  // keeps tokens with at least this times the highest probability

  // Tokens in prompt or output: positive logits are divided by it, negative ones multiplied. 1: none.
  double repetition_penalty = 1;
  // Subtracted from the logits of tokens in the output: once, and once for each occurrence.
  double presence_penalty = 0, frequency_penalty = 0;
  std::map<model::TokenId, float> logit_bias = {};

  uint64_t seed = 0;
  // Reports log-probabilities of the sampled token and of this many most likely ones, from the logits before
  // bias, penalties and filters.
  std::optional<int64_t> logprobs = {};
};

// Whether every token may be drawn: no filter rules one out. Not of a temperature of 0.
inline bool draws_from_all(const SamplingParameters& p, int64_t vocab_size) {
  return (p.top_k <= 0 || p.top_k >= vocab_size) && p.top_p >= 1 && p.min_p <= 0;
}

// The error names the parameter, its value and its range.
Status check(const SamplingParameters& parameters, int64_t vocab_size);

struct TokenLogprob {
  model::TokenId id = 0;
  double logprob    = 0;
};

struct Sampled {
  model::TokenId id = 0;
  std::optional<double> logprob;
  std::vector<TokenLogprob> top;  // most likely first, of equal ones the lower id first
};

// Disallowed tokens, applied after bias and penalties. Reported log-probabilities ignore it.
struct Restriction {
  Constraint* constraint                 = nullptr;
  std::span<const model::TokenId> banned = {};
};

class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  // Samples the token after `prompt` and `output` from logits [V]. Precondition: check() accepts the
  // parameters. Fails where a logit is NaN or +infinity, or all are -infinity. Without logprobs nothing is
  // allocated.
  Result<Sampled> sample(std::span<const float> logits, const SamplingParameters& parameters,
                         std::span<const model::TokenId> prompt, std::span<const model::TokenId> output,
                         const Restriction& restriction = {});

 private:
  // A token's logit and id as one number, ordered by logit, then by descending id. Every filter keeps the
  // tokens at or above some rank.
  using Rank = uint64_t;
  struct Candidate {
    model::TokenId id;
    double weight;  // unnormalised probability; 1 for the most likely token
  };

  // The logits after bias, penalties and restriction: `logits` itself, or logits_.
  std::span<const float> processed(std::span<const float> logits, const SamplingParameters& parameters,
                                   std::span<const model::TokenId> prompt,
                                   std::span<const model::TokenId> output, const Restriction& restriction);
  void penalize(const SamplingParameters& parameters, std::span<const model::TokenId> prompt,
                std::span<const model::TokenId> output);
  std::span<Rank> largest(std::span<const float> logits, int64_t count);
  void keep_from(std::span<const float> logits, Rank from, float max_logit, double temperature,
                 double min_weight);
  Rank nucleus(std::span<const float> logits, double top_p);
  model::TokenId draw(std::span<const float> logits, const SamplingParameters& parameters, float max_logit,
                      int64_t position);

  // Scratch, [V] each; ranks_ is [2 V].
  std::vector<float> logits_;
  std::vector<int32_t> counts_;  // zero between calls
  std::vector<Rank> ranks_;
  std::vector<Candidate> candidates_;
};

}  // namespace fathom::engine
