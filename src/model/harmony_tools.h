// The developer message of harmony, the conversation format of gpt-oss: instructions, the functions that the
// model may call, as TypeScript types, and the JSON Schema of its answer. The text equals that of
// openai/harmony byte for byte where that is meaningful TypeScript.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fathom::model {

// A function with its parameters, or a response format.
struct NamedSchema {
  std::string name;
  std::string description;  // "" for none
  // JSON Schema of an object, as JSON text nested at most 64 deep; "" for none.
  std::string schema;
};

// Content of the developer message; "" if all arguments are empty. `response` may be null.
std::string harmony_developer_text(std::string_view instructions, std::span<const NamedSchema> functions,
                                   const NamedSchema* response);

}  // namespace fathom::model
