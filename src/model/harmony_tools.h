// The developer message of harmony, gpt-oss's conversation format: instructions, the functions the model may
// call as TypeScript types, and the JSON Schema its answer should follow (specs/gpt-oss.md section 10). The
// text is that of openai/harmony, byte for byte, where that is meaningful TypeScript.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fathom::model {

// A function's name and its parameters, or a response format's name and its content.
struct NamedSchema {
  std::string name;
  std::string description;  // "" where there is none
  std::string schema;  // JSON Schema, an object, as JSON text nested at most 64 deep; "" where there is none
};

// Content of the developer message; "" where there is nothing to say. `response` may be null.
std::string harmony_developer_text(std::string_view instructions, std::span<const NamedSchema> functions,
                                   const NamedSchema* response);

}  // namespace fathom::model
