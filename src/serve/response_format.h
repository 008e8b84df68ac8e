// response_format: the text, JSON object or JSON schema that an answer must be.
#pragma once

#include "model/harmony_tools.h"
#include "serve/json_fields.h"
#include "serve/request_fields.h"

namespace fathom::serve {

struct ResponseFormat {
  enum class Kind { text, json_object, json_schema };
  Kind kind = Kind::text;
  model::NamedSchema schema;  // of Kind::json_schema
};

// Reads `format` as OpenAI writes it; where it is absent, vLLM's structured_outputs and guided_json of the
// body.
ResponseFormat read_response_format(const Field& body, const Field& format, Shape shape);

}  // namespace fathom::serve
