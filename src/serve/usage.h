// The token counts and times of a request, as "usage" and "timings" of a response.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fathom::serve {

struct Usage {
  // Cached: prompt tokens that were not computed again.
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t completion_tokens = 0, reasoning_tokens = 0;  // reasoning: included in completion_tokens
  int64_t choices = 0;                                  // choices that have ended; the times cover these
  // From the first admission of a choice to the last first token, and from the first first token to the last
  // end.
  double prompt_ms = 0, predicted_ms = 0;
  std::string weight_version = {};  // of the weights that wrote the latest token; "": not known
};

// OpenAI's "usage" of completions and chat completions.
nlohmann::ordered_json usage_json(const Usage& usage);
// llama.cpp's "timings". The prompt rate counts computed prompt tokens; the generation rate leaves out the
// first token of each choice. null where no time passed.
nlohmann::ordered_json timings_json(const Usage& usage);
// SGLang's "weight_version" in a response's "metadata", where it is known.
void set_weight_version(nlohmann::ordered_json& response, const Usage& usage);

}  // namespace fathom::serve
