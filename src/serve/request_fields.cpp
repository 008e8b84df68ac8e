#include "serve/request_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/strict_json.h"

namespace fathom::serve {

std::string read_name(const Field& name) {
  const auto text = name.text(kMaxNameBytes);
  if (!text) {
    name.fail("is missing");
    return "";
  }
  const bool plain = std::all_of(text->begin(), text->end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (!plain)
    name.fail(fmt::format("is {}, but may have letters, digits, '_', '-' and '.' only", in_quotes(*text)));
  return *text;
}

std::string read_schema(const Field& schema) {
  std::string text = schema.object_text().value_or("");
  if (text.size() > kMaxSchemaBytes)
    schema.fail(fmt::format("has {} bytes, but at most {} are allowed", text.size(), kMaxSchemaBytes));
  return text;
}

model::NamedSchema read_named_schema(const Field& field, std::string_view schema_name) {
  return {.name        = read_name(field["name"]),
          .description = field["description"].text().value_or(""),
          .schema      = read_schema(field[schema_name])};
}

void refuse_unsupported(const Field& body, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (const Field field = body[name]; field && !field.is_empty())
      field.fail("is not supported by this server: leave it out");
}

}  // namespace fathom::serve
