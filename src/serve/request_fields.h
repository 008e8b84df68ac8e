// The parts that requests of several endpoints share, read from their JSON.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_request.h"
#include "serve/json_fields.h"

namespace fathom::serve {

// OpenAI writes a tool as {"type", "function": {...}} in chat completions and as {"type", ...} in responses,
// a response format likewise.
enum class Shape { nested, flat };

// All of it but `format`. That and `max_tokens` have other places at each endpoint.
GenerationOptions read_options(const Field& body, const ServedModel& served, const Field& max_tokens);
// `format` as OpenAI writes it; where it is absent, vLLM's structured_outputs and guided_json of the body.
ResponseFormat read_response_format(const Field& body, const Field& format, Shape shape);
std::vector<model::NamedSchema> read_tools(const Field& tools, Shape shape);
ToolChoice read_tool_choice(const Field& choice, const std::vector<model::NamedSchema>& tools, Shape shape);
std::string read_effort(const Field& effort);  // low, medium or high
// A name that becomes part of a prompt's structure: letters, digits, '_', '-' and '.'.
std::string read_name(const Field& name);
// One of `roles`, by name.
ChatMessage::Role read_role(const Field& role, std::initializer_list<std::string_view> roles);
// A string, or parts of type text, input_text or output_text, joined.
std::string read_content(const Field& content);

// What a chat request asks for beside its options.
ChatRequest read_chat(const Field& body, const ServedModel& served);

// Fields whose being ignored would change what the answer means; null, false and empty values ask for
// nothing.
void refuse_unsupported(const Field& body, std::initializer_list<std::string_view> names);

}  // namespace fathom::serve
