// The streamed response of POST /v1/chat/completions: server-sent events with OpenAI's chat.completion.chunk.
#pragma once

#include <memory>

#include "model/tokenizer.h"
#include "serve/chat_completion.h"

namespace fathom::serve {

// The tokenizer must outlive the writer.
std::unique_ptr<ResponseWriter> chat_completion_stream(const model::Tokenizer& tokenizer,
                                                       ChatCompletionOptions options);

}  // namespace fathom::serve
