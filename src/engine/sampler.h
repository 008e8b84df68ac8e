// From logits to the next token. The choice is a function of the logits, the parameters and the token's
// position in its sequence: the same in any batch, on any thread, in any order.
//
// As in vLLM and Hugging Face's generate: logit bias, then penalties, temperature, top-k, top-p, min-p, each
// on what the one before left, renormalised. Greedy decoding stops after the penalties.
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
  int64_t top_k      = 0;  // the k most likely, the lower id first where they are equal; 0: all
  double top_p       = 1;  // the fewest most likely tokens that together have this probability
  double min_p       = 0;  // those at least this often as likely as the most likely one

  // Of tokens in prompt or output: positive logits are divided by it, negative ones multiplied. 1: none.
  double repetition_penalty = 1;
  // Subtracted from logits of tokens in the output: once, and for each time.
  double presence_penalty = 0, frequency_penalty = 0;
  std::map<model::TokenId, float> logit_bias = {};

  uint64_t seed = 0;
  // Report log-probabilities: of the chosen token, and of this many most likely ones. They are the model's:
  // of its logits as they came.
  std::optional<int64_t> logprobs = {};
};

// An error names the parameter, its value and what it may be.
Status check(const SamplingParameters& parameters, int64_t vocab_size);

struct TokenLogprob {
  model::TokenId id = 0;
  double logprob    = 0;
};

struct Sampled {
  model::TokenId id = 0;
  std::optional<double> logprob;
  std::vector<TokenLogprob> top;  // the likeliest first, the lower id first where they are equal
};

// What may not come next, after bias and penalties and before the choice. Reported log-probabilities know
// nothing of it.
struct Restriction {
  Constraint* constraint                    = nullptr;
  std::span<const model::TokenId> forbidden = {};
};

class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  // The token after `prompt` and `output`; logits [V]; parameters that check() is content with. An error
  // where a logit is NaN or +infinity, or all are -infinity: no distribution. Without logprobs nothing is
  // allocated.
  Result<Sampled> sample(std::span<const float> logits, const SamplingParameters& parameters,
                         std::span<const model::TokenId> prompt, std::span<const model::TokenId> output,
                         const Restriction& restriction = {});

 private:
  // A token and its logit as one number: the larger, the likelier, then the lower id. Every filter keeps
  // those from one rank on.
  using Rank = uint64_t;
  struct Candidate {
    model::TokenId id;
    double weight;  // of the most likely: 1
  };

  // The logits as they are, or changed in logits_.
  std::span<const float> changed(std::span<const float> logits, const SamplingParameters& parameters,
                                 std::span<const model::TokenId> prompt,
                                 std::span<const model::TokenId> output, const Restriction& restriction);
  void penalize(const SamplingParameters& parameters, std::span<const model::TokenId> prompt,
                std::span<const model::TokenId> output);
  std::span<Rank> largest(std::span<const float> logits, int64_t count);
  void keep_from(std::span<const float> logits, Rank from, float most, double temperature, double min_weight);
  Rank nucleus(std::span<const float> logits, double top_p);
  model::TokenId draw(std::span<const float> logits, const SamplingParameters& parameters, float most,
                      int64_t position);

  // Scratch, [V] each but for ranks_, which has room for twice as many.
  std::vector<float> logits_;
  std::vector<int32_t> counts_;  // zero between calls
  std::vector<Rank> ranks_;
  std::vector<Candidate> candidates_;
};

}  // namespace fathom::engine
