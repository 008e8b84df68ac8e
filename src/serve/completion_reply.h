// Replies of POST /v1/completions: OpenAI's text_completion, with vLLM's stop_reason and llama.cpp's timings
// (specs/serving.md section 2).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/tokenizer.h"
#include "serve/reply.h"

namespace fathom::serve {

struct CompletionReplyOptions {
  ReplyHead head;
  std::vector<std::string> echo;  // by choice: the text that stands before the answer, "" for none
  bool logprobs               = false;
  bool include_usage          = false;  // of streams: a last chunk, without choices
  bool continuous_usage_stats = false;  // of streams: in each chunk
};

// As many choices as `echo` has texts. The tokenizer must outlive them.
std::unique_ptr<Reply> completion_body(const model::Tokenizer& tokenizer, CompletionReplyOptions options);
std::unique_ptr<Reply> completion_stream(const model::Tokenizer& tokenizer, CompletionReplyOptions options);

}  // namespace fathom::serve
