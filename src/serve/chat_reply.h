// Replies of POST /v1/chat/completions: OpenAI's chat.completion and chat.completion.chunk, with vLLM's
// reasoning and stop_reason and llama.cpp's timings (specs/serving.md section 2).
#pragma once

#include <cstdint>
#include <memory>

#include "model/tokenizer.h"
#include "serve/reply.h"

namespace fathom::serve {

struct ChatReplyOptions {
  ReplyHead head;
  size_t choices              = 1;
  bool include_reasoning      = true;   // as "reasoning" and, for older clients, "reasoning_content"
  bool logprobs               = false;  // of content
  bool include_usage          = false;  // of streams: a last chunk, without choices
  bool continuous_usage_stats = false;  // of streams: in each chunk
};

// The tokenizer must outlive them.
std::unique_ptr<Reply> chat_body(const model::Tokenizer& tokenizer, ChatReplyOptions options);
std::unique_ptr<Reply> chat_stream(const model::Tokenizer& tokenizer, ChatReplyOptions options);

}  // namespace fathom::serve
