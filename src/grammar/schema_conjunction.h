// Schemas that must all hold, with $ref followed and allOf, anyOf and oneOf taken apart.
#pragma once

#include <vector>

#include "grammar/byte_dfa.h"
#include "grammar/schema_document.h"

namespace fathom::grammar {

struct Conjunction {
  std::vector<SchemaPart> parts;         // schemas with keywords of their own; all hold
  std::vector<SchemaPart> alternatives;  // the lists of anyOf and oneOf; one schema of each list holds
  bool never = false;                    // one of the schemas is `false`

  // Equal for equal sets of schemas.
  std::vector<const SchemaJson*> key() const;
};

// Adds `schema` to the conjunction. Throws SchemaRefused for a keyword that cannot be enforced, for a schema
// that reaches itself without an object or array in between, and when the budget is spent.
void add_schema(const SchemaPart& schema, Conjunction& into, CompileBudget& budget);

// The schemas of a keyword that holds a list of them. Throws SchemaRefused unless `value` is such a list.
const SchemaJson& schema_list(const SchemaJson& value, const SchemaPart& part, std::string_view keyword);

// Throws SchemaRefused when the budget is spent.
void spend_or_refuse(CompileBudget& budget, int64_t steps);

}  // namespace fathom::grammar
