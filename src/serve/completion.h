// The response of POST /v1/completions: OpenAI's text_completion, with vLLM's stop_reason and llama.cpp's
// timings. completion_stream.h has the same as chunks.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"
#include "serve/response_writer.h"

namespace fathom::serve {

inline constexpr std::string_view kTextCompletion = "text_completion";  // "object" of bodies and of chunks

struct CompletionOptions {
  ResponseEnvelope envelope;
  std::vector<std::string> echo;  // for each choice, the text before its answer; "" for none
  bool logprobs               = false;
  bool include_usage          = false;  // of streams: usage in a last chunk without choices
  bool continuous_usage_stats = false;  // of streams: usage in every chunk
};

// The response has as many choices as `echo` has texts. The tokenizer must outlive the writer.
std::unique_ptr<ResponseWriter> completion_body(const model::Tokenizer& tokenizer, CompletionOptions options);

// One element of "choices"; `finish` is null before the choice has ended.
nlohmann::ordered_json completion_choice_json(const model::Tokenizer& tokenizer,
                                              const CompletionOptions& options, size_t index,
                                              std::string_view text, std::span<const ContentToken> tokens,
                                              const ChoiceFinish* finish);

}  // namespace fathom::serve
