// The streamed response of POST /v1/responses: server-sent events of OpenAI's types, response.created to
// response.completed.
#pragma once

#include <memory>

#include "model/tokenizer.h"
#include "serve/response_writer.h"
#include "serve/responses_request.h"

namespace fathom::serve {

// The tokenizer must outlive the writer, the request need not.
std::unique_ptr<ResponseWriter> responses_stream(const model::Tokenizer& tokenizer,
                                                 const ResponseEnvelope& envelope,
                                                 const ResponsesRequest& request);

}  // namespace fathom::serve
