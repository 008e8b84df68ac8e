// Compiles JSON Schema to a grammar that admits only values of the schema. A schema that cannot be enforced
// is refused, never relaxed.
//
// Enforced (drafts 7 to 2020-12): type, enum, const, properties, required, additionalProperties, items,
// prefixItems, minItems, maxItems, minLength, maxLength, pattern (regex_dfa.h), format (string_format.h),
// minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf of integers, anyOf, allOf, $ref within the
// document (recursion included), OpenAPI's nullable, true and false. oneOf is treated as anyOf. Annotations
// are skipped.
//
// The grammar is narrower than the schema in these points, because a model needs only one way to write a
// value:
//   - properties come in the schema's order
//   - an object is closed unless additionalProperties says otherwise or no properties are named
//   - a tuple is closed unless items or minItems say otherwise
//   - a schema without `type` has the types that its keywords are about
//   - numbers are restricted as number_range.h says
//   - names, enum values and strings with a pattern have one spelling (json_string.h)
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "grammar/json_grammar.h"

namespace fathom::grammar {

// A schema has at most 256 KiB and is nested at most 64 deep. Compile time (under a second) and memory are
// bounded. The error names the place in the schema ("#/properties/age/not") and the remedy.
Result<std::shared_ptr<const JsonGrammar>> compile_json_schema(std::string_view schema);

// A tool call {"name": NAME, "arguments": ...} of one of `named`, with arguments of its schema.
struct NamedSchema {
  std::string name, schema;
};
Result<std::shared_ptr<const JsonGrammar>> compile_named_schemas(std::span<const NamedSchema> named);

}  // namespace fathom::grammar
