// What a request cost, in tokens and in time, and how a reply says so.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace fathom::serve {

struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0;         // cached: of the prompt, that were not computed anew
  int64_t completion_tokens = 0, reasoning_tokens = 0;  // reasoning: of the completion
  int64_t choices = 0;                                  // that ended; the times are theirs
  // From the first choice's admission to the last one's first token, and from the first one's first token to
  // the last one's end.
  double prompt_ms = 0, predicted_ms = 0;
};

// OpenAI's "usage" of completions and chats.
nlohmann::ordered_json usage_json(const Usage& usage);
// llama.cpp's "timings". Rates are of tokens that these times brought: the prompt's that were computed, and
// all but the first of each choice. null where there was no time.
nlohmann::ordered_json timings_json(const Usage& usage);

}  // namespace fathom::serve
