#include "serve/response_format.h"

namespace fathom::serve {
namespace {

// structured_outputs.json or guided_json: a schema, or a schema as a string.
ResponseFormat read_schema_alone(const Field& schema) {
  ResponseFormat format{.kind = ResponseFormat::Kind::json_schema, .schema = {.name = "answer"}};
  if (!schema.is_text()) {
    format.schema.schema = read_schema(schema);
    return format;
  }
  JsonBody inner(*schema.text());
  if (inner.error()) schema.fail("is a string, but no JSON object is in it");
  format.schema.schema = read_schema(inner.root());
  if (inner.error()) schema.fail("is too long");
  return format;
}

}  // namespace

ResponseFormat read_response_format(const Field& body, const Field& format, Shape shape) {
  using Kind = ResponseFormat::Kind;
  ResponseFormat found;
  if (format) {
    if (!format["type"]) format["type"].fail("is missing");
    const std::string type = format["type"].one_of({"text", "json_object", "json_schema"}).value_or("text");
    if (type == "json_object") found.kind = Kind::json_object;
    if (type == "json_schema") {
      const Field named = shape == Shape::flat ? format : format["json_schema"];
      found             = {.kind = Kind::json_schema, .schema = read_named_schema(named, "schema")};
      if (!named["schema"]) named["schema"].fail("is missing");
    }
  }
  const Field outputs     = body["structured_outputs"];
  const Field schema      = outputs["json"] ? outputs["json"] : body["guided_json"];
  const Field json_object = outputs["json_object"];
  refuse_unsupported(outputs, {"regex", "choice", "grammar", "structural_tag"});
  const bool any_object = json_object.boolean().value_or(false);
  if ((found.kind != Kind::text) + static_cast<bool>(schema) + any_object > 1)
    (schema ? schema : json_object).fail("constrains an answer that is constrained already: do so once");
  if (schema) return read_schema_alone(schema);
  if (any_object) found.kind = Kind::json_object;
  return found;
}

}  // namespace fathom::serve
