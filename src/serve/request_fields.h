// Fields with the same form in several requests: names, JSON schemas, and fields that are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "model/harmony_tools.h"
#include "serve/json_fields.h"

namespace fathom::serve {

inline constexpr int64_t kMaxNameBytes = 128;  // of functions, response formats and request ids
// The model reads schemas as part of the prompt, so a schema of hundreds of thousands of tokens is refused
// early.
inline constexpr size_t kMaxSchemaBytes = 1 << 20;

// Chat completions nest a tool, {"type", "function": {...}}; responses write it flat, {"type", ...}. Response
// formats differ in the same way.
enum class Shape { nested, flat };

// A name that becomes part of a prompt's structure: letters, digits, '_', '-' and '.'.
std::string read_name(const Field& name);
std::string read_schema(const Field& schema);
// {"name", "description", `schema_name`}
model::NamedSchema read_named_schema(const Field& field, std::string_view schema_name);

// Refuses fields that would change the meaning of the answer if they were ignored. Null, false and empty
// values are accepted.
void refuse_unsupported(const Field& body, std::initializer_list<std::string_view> names);

}  // namespace fathom::serve
