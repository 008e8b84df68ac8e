// The messages of a conversation, as chat completions, responses and tokenize receive them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "serve/json_fields.h"

namespace fathom::serve {

struct ToolCall {
  std::string id, name;
  std::string arguments;  // as the model wrote them: possibly malformed JSON
};

struct ChatMessage {
  enum class Role { system, developer, user, assistant, tool };
  Role role;
  std::string content;               // text parts joined; "" where an assistant's is null
  std::string reasoning;             // of an assistant
  std::vector<ToolCall> tool_calls;  // of an assistant
  std::string function;              // of a tool: the function that returned this result
};

// The role must be one of `roles`.
ChatMessage::Role read_role(const Field& role, std::initializer_list<std::string_view> roles);
// A string, or parts of type text, input_text or output_text, joined.
std::string read_content(const Field& content);

}  // namespace fathom::serve
