// The response of POST /v1/chat/completions: OpenAI's chat.completion, with vLLM's reasoning and stop_reason
// and llama.cpp's timings. chat_completion_stream.h has the same as chunks.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "model/tokenizer.h"
#include "serve/response_writer.h"

namespace fathom::serve {

struct ChatCompletionOptions {
  ResponseEnvelope envelope;
  size_t choices              = 1;
  bool include_reasoning      = true;   // as "reasoning" and, for older clients, "reasoning_content"
  bool logprobs               = false;  // of content
  bool include_usage          = false;  // of streams: usage in a last chunk without choices
  bool continuous_usage_stats = false;  // of streams: usage in every chunk
};

// The tokenizer must outlive the writer.
std::unique_ptr<ResponseWriter> chat_completion_body(const model::Tokenizer& tokenizer,
                                                     ChatCompletionOptions options);

// "tool_calls" where the model called a tool and ended its answer by itself: it waits for the result.
std::string_view chat_finish_reason(const ChoiceFinish& finish, bool called_tool);
// A new tool call, with empty arguments.
nlohmann::ordered_json tool_call_json(std::string_view name);
// The delta's text, after a newline where it starts a second message of its kind (a preamble and an answer).
std::string separated_text(const OutputDelta& delta, bool first);

}  // namespace fathom::serve
