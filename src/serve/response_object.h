// OpenAI's response object of POST /v1/responses, without its output.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "serve/response_writer.h"
#include "serve/responses_request.h"
#include "serve/usage.h"

namespace fathom::serve {

// The object before anything was generated: "in_progress", with the request's own fields repeated.
nlohmann::ordered_json new_response(const ResponseEnvelope& envelope, const ResponsesRequest& request);
// Its "usage", whose field names differ from those of completions.
nlohmann::ordered_json response_usage_json(const Usage& usage);

}  // namespace fathom::serve
