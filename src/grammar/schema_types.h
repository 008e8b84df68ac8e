// The JSON types that schemas admit: the keywords `type` and `nullable`.
#pragma once

#include <array>
#include <span>

#include "grammar/schema_document.h"

namespace fathom::grammar {

enum JsonType { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject, kJsonTypes };
using JsonTypes = std::array<bool, kJsonTypes>;

// The types that every schema of `parts` admits. Without any `type`, the types that the schemas' keywords are
// about; without such keywords, all types. Throws SchemaRefused for an invalid `type`.
JsonTypes types_of(std::span<const SchemaPart> parts);

// Whether `value` has one of the types. 1.0 is an integer.
bool has_type(const SchemaJson& value, const JsonTypes& types);

}  // namespace fathom::grammar
