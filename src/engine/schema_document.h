// The text of a JSON Schema, parsed with care, and what its keywords speak of. json_schema.cpp compiles it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::engine {

using SchemaJson = nlohmann::ordered_json;  // objects keep their order

// Why a schema is not compiled; thrown within the compiler and caught at its door.
struct SchemaRefused {
  std::string message;
};

// Throws SchemaRefused for text that is too long, too deep, no JSON, or has a key twice in one object.
SchemaJson parse_schema(std::string_view text);

// A schema, and where it stands.
struct SchemaPart {
  const SchemaJson* schema;
  const SchemaJson* document;  // that its references are in
  std::string place;           // "#/properties/a"

  // Its keyword's value, nullptr where there is none. The schema is an object.
  const SchemaJson* find(const char* keyword) const;
  SchemaPart child(std::string_view keyword, const SchemaJson& schema) const;
  // "the schema's #/properties/a/minimum ", and why.
  [[noreturn]] void refuse(std::string_view keyword, const std::string& why) const;
  // What the $ref `reference` leads to.
  SchemaPart resolve(const SchemaJson& reference) const;
};

// What a keyword speaks of; std::nullopt for one that is not known.
enum class KeywordScope { annotation, all, combination, number, string, array, object };
std::optional<KeywordScope> scope_of(std::string_view keyword);

}  // namespace fathom::engine
