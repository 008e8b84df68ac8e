// Replies of POST /v1/responses: OpenAI's response object, and the typed events of its stream.
#pragma once

#include <memory>

#include "model/tokenizer.h"
#include "serve/api_request.h"
#include "serve/reply.h"

namespace fathom::serve {

// Of one choice. The tokenizer must outlive them, the request need not.
std::unique_ptr<Reply> responses_body(const model::Tokenizer& tokenizer, const ReplyHead& head,
                                      const ResponsesRequest& request);
std::unique_ptr<Reply> responses_stream(const model::Tokenizer& tokenizer, const ReplyHead& head,
                                        const ResponsesRequest& request);

}  // namespace fathom::serve
