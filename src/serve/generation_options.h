// The options that chat completions, completions and responses share: sampling, stops, streaming, priority.
// OpenAI's fields, with vLLM's and llama.cpp's additions.
//
// After parsing, every number is within its range, every token id within the vocabulary and every list within
// its limit. Unknown fields are ignored; null counts as absent. Two checks remain for the route: that the
// model is the one served, and that the prompt fits the context.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "model/checkpoint.h"
#include "model/tokenizer.h"
#include "serve/json_fields.h"
#include "serve/response_format.h"

namespace fathom::serve {

inline constexpr int64_t kMaxChoices      = 128;   // of one request: prompts times n
inline constexpr int64_t kMaxStops        = 16;    // stop strings
inline constexpr int64_t kMaxStopBytes    = 1024;  // of one stop string
inline constexpr int64_t kMaxStopTokenIds = 1024;
inline constexpr int64_t kMaxLogprobs     = 20;
inline constexpr int64_t kMaxLogitBiases  = 4096;

// Sampling parameters for requests that do not set them.
using GenerationDefaults = model::SamplingDefaults;

// The limits that requests are checked against.
struct ServedModel {
  int64_t vocab_size  = 0;
  int64_t max_context = 0;  // tokens of prompt and answer together
  GenerationDefaults defaults;
};

struct GenerationOptions {
  std::string model;  // "" where the client named none
  // Without the seed. `logprobs` is set where the client asked for log-probabilities; 0 asks for those of the
  // chosen tokens only.
  engine::SamplingParameters sampling;
  std::optional<uint64_t> seed;       // none: a random one; choice i of n samples with seed + i
  std::optional<int64_t> max_tokens;  // at most max_context; none: as many as fit
  int64_t min_tokens = 0;             // at most max_tokens
  // Of reasoning; then the answer begins. -1: no limit; none: with a format, at most half of max_tokens.
  std::optional<int64_t> thinking_token_budget;
  int64_t n = 1;                  // answers to each prompt
  std::vector<std::string> stop;  // no empty strings
  std::vector<model::TokenId> stop_token_ids;
  bool ignore_eos                 = false;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens        = true;
  ResponseFormat format;

  bool stream                 = false;
  bool include_usage          = false;     // usage in a last chunk of its own
  bool continuous_usage_stats = false;     // usage in every chunk
  std::chrono::seconds ping_interval{30};  // a stream that is silent for this long sends a ping; 0: never

  int priority = 0;
  std::string cache_salt;
  std::string request_id;  // visible ASCII; "" where the client gave none
};

// Reads every field but `format`, which each endpoint keeps elsewhere; `max_tokens` is that endpoint's field
// for the limit.
GenerationOptions read_generation_options(const Field& body, const ServedModel& served,
                                          const Field& max_tokens);

}  // namespace fathom::serve
