#include "serve/chat_message.h"

#include <limits>

namespace fathom::serve {

ChatMessage::Role read_role(const Field& role, std::initializer_list<std::string_view> roles) {
  using Role = ChatMessage::Role;
  if (!role) role.fail("is missing");
  const std::string word = role.one_of(roles).value_or("user");
  return word == "system"      ? Role::system
         : word == "developer" ? Role::developer
         : word == "assistant" ? Role::assistant
         : word == "tool"      ? Role::tool
                               : Role::user;
}

std::string read_content(const Field& content) {
  if (!content.is_array()) return content.text().value_or("");
  std::string text;
  const int64_t count = content.size(std::numeric_limits<int64_t>::max());
  for (int64_t i = 0; i < count && !content.failed(); ++i) {
    const Field part = content.at(i);
    if (!part["type"]) part["type"].fail("is missing");
    if (part["type"].one_of({"text", "input_text", "output_text"}) && !part["text"])
      part["text"].fail("is missing");
    text += part["text"].text().value_or("");
  }
  return text;
}

}  // namespace fathom::serve
