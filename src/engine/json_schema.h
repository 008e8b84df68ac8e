// JSON Schema to a grammar that admits nothing else. What cannot be enforced is refused, never ignored.
//
// Enforced (drafts 7 to 2020-12): type, enum, const, properties, required, additionalProperties, items,
// prefixItems, minItems, maxItems, minLength, maxLength, pattern (string_pattern.h), format, minimum,
// maximum, exclusiveMinimum, exclusiveMaximum, multipleOf of integers, anyOf, allOf, $ref within the
// document, also in circles, OpenAPI's nullable, true and false. oneOf is read as anyOf. Annotations are
// skipped.
//
// The grammar is narrower than the schema where only one form makes sense to write: properties come in the
// schema's order, and the object is closed unless additionalProperties says otherwise or no properties are
// named; a tuple is closed unless items or minItems say otherwise; a schema without type is of the types that
// its keywords speak of; numbers as number_range.h has them; a name, an enum's value and a string with a
// pattern are spelt in one way (json_string.h).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "engine/json_grammar.h"

namespace fathom::engine {

// A schema text has at most 256 KiB, is nested at most 64 deep, and compiles in bounded time (under a second)
// and memory; an error names the place in it ("#/properties/age/not") and the remedy.
Result<std::shared_ptr<const JsonGrammar>> compile_json_schema(std::string_view schema);

// {"name": NAME, "arguments": ...}: of one of them, with arguments by its schema.
struct NamedSchema {
  std::string name, schema;
};
Result<std::shared_ptr<const JsonGrammar>> compile_named_schemas(std::span<const NamedSchema> named);

}  // namespace fathom::engine
