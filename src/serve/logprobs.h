// Log-probabilities of content tokens as OpenAI's JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "model/tokenizer.h"
#include "serve/output_parser.h"

namespace fathom::serve {

// JSON has no infinity: -9999, as in vLLM, stands for a probability of zero.
double finite_logprob(double logprob);
// [{token, logprob, bytes, top_logprobs}], as in chat completions and responses.
nlohmann::ordered_json logprobs_json(const model::Tokenizer& tokenizer, std::span<const ContentToken> tokens);

}  // namespace fathom::serve
