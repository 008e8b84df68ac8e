#include "serve/response_object.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json schema_json(const std::string& schema) { return schema.empty() ? Json(nullptr) : Json::parse(schema); }

Json tools_json(const std::vector<model::NamedSchema>& tools) {
  Json all = Json::array();
  for (const model::NamedSchema& tool : tools)
    all.push_back({{"type", "function"},
                   {"name", tool.name},
                   {"description", text_or_null(tool.description)},
                   {"parameters", schema_json(tool.schema)},
                   {"strict", false}});
  return all;
}

Json tool_choice_json(const ToolChoice& choice) {
  switch (choice.kind) {
    case ToolChoice::Kind::none:
      return "none";
    case ToolChoice::Kind::automatic:
      return "auto";
    case ToolChoice::Kind::required:
      return "required";
    case ToolChoice::Kind::named:
      break;
  }
  return {{"type", "function"}, {"name", choice.name}};
}

Json format_json(const ResponseFormat& format) {
  switch (format.kind) {
    case ResponseFormat::Kind::text:
      return {{"type", "text"}};
    case ResponseFormat::Kind::json_object:
      return {{"type", "json_object"}};
    case ResponseFormat::Kind::json_schema:
      break;
  }
  return {{"type", "json_schema"},
          {"name", format.schema.name},
          {"description", text_or_null(format.schema.description)},
          {"schema", schema_json(format.schema.schema)}};
}

}  // namespace

Json new_response(const ResponseEnvelope& envelope, const ResponsesRequest& request) {
  const ChatCompletionRequest& chat = request.chat;
  const GenerationOptions& options  = chat.options;
  return {{"id", envelope.id},
          {"object", "response"},
          {"created_at", envelope.created},
          {"status", "in_progress"},
          {"error", nullptr},
          {"incomplete_details", nullptr},
          {"instructions", text_or_null(request.instructions)},
          {"max_output_tokens", options.max_tokens ? Json(*options.max_tokens) : Json(nullptr)},
          {"metadata", Json::parse(request.metadata)},
          {"model", envelope.model},
          {"output", Json::array()},
          {"parallel_tool_calls", chat.parallel_tool_calls},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", chat.reasoning_effort}, {"summary", nullptr}}},
          {"store", false},
          {"temperature", options.sampling.temperature},
          {"text", {{"format", format_json(options.format)}}},
          {"tool_choice", tool_choice_json(chat.tool_choice)},
          {"tools", tools_json(chat.tools)},
          {"top_p", options.sampling.top_p},
          {"truncation", "disabled"},
          {"usage", nullptr}};
}

Json response_usage_json(const Usage& usage) {
  // Strict clients require cache_write_tokens: cache writes at extra cost, which do not exist here.
  const Json input = {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}};
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", input},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

}  // namespace fathom::serve
