// Parses the text of a JSON Schema within limits and classifies its keywords. json_schema.cpp compiles it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::grammar {

using SchemaJson = nlohmann::ordered_json;  // objects keep their order

// Why a schema is refused. Thrown inside the compiler; compile_json_schema() turns it into an Error.
struct SchemaRefused {
  std::string message;
};

// Throws SchemaRefused for text that is too long, nested too deep, not JSON, or has a key twice in one
// object.
SchemaJson parse_schema(std::string_view text);

// A (sub)schema and its place in the document.
struct SchemaPart {
  const SchemaJson* schema;
  const SchemaJson* document;  // where its references are resolved
  std::string place;           // "#/properties/a"

  // The keyword's value, or nullptr. Precondition: the schema is an object.
  const SchemaJson* find(const char* keyword) const;
  SchemaPart child(std::string_view keyword, const SchemaJson& schema) const;
  // Throws SchemaRefused: "the schema's #/properties/a/minimum WHY".
  [[noreturn]] void refuse(std::string_view keyword, const std::string& why) const;
  // The schema that the $ref `reference` points to.
  SchemaPart resolve(const SchemaJson& reference) const;
};

// The type of value that a keyword is about; std::nullopt for an unknown keyword.
enum class KeywordScope { annotation, all, combination, number, string, array, object };
std::optional<KeywordScope> scope_of(std::string_view keyword);

}  // namespace fathom::grammar
