// The streamed response of POST /v1/completions: server-sent events with text_completion chunks.
#pragma once

#include <memory>

#include "model/tokenizer.h"
#include "serve/completion.h"

namespace fathom::serve {

// One choice for each of options.echo. The tokenizer must outlive the writer.
std::unique_ptr<ResponseWriter> completion_stream(const model::Tokenizer& tokenizer,
                                                  CompletionOptions options);

}  // namespace fathom::serve
