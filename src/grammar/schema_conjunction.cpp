#include "grammar/schema_conjunction.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

namespace fathom::grammar {
namespace {

using Json = SchemaJson;
using Part = SchemaPart;

constexpr int kMaxNest = 200;  // references and combinations inside each other

class Flattener {
 public:
  Flattener(Conjunction& into, CompileBudget& budget) : into_(into), budget_(budget) {}

  void add(const Part& part, int nest = 0) {
    if (part.schema->is_boolean()) {
      into_.never |= !part.schema->get<bool>();
      return;
    }
    if (!part.schema->is_object())
      throw SchemaRefused{fmt::format("the schema's {} must be an object, true or false", part.place)};
    const auto [place, is_new] = done_.try_emplace(part.schema, false);
    if (!is_new && !place->second)
      throw SchemaRefused{fmt::format(
          "the schema's {} comes back to itself without an object or an array in between", part.place)};
    if (!is_new) return;
    if (nest > kMaxNest)
      throw SchemaRefused{
          fmt::format("the schema's {} is behind more than {} references", part.place, kMaxNest)};
    if (check(part)) add_new(part, into_.parts);
    if (const Json* reference = part.find("$ref")) add(part.resolve(*reference), nest + 1);
    if (const Json* all = part.find("allOf"))
      for (size_t i = 0; i < schema_list(*all, part, "allOf").size(); ++i)
        add(part.child("allOf", *all).child(std::to_string(i), (*all)[i]), nest + 1);
    for (const char* keyword : {"anyOf", "oneOf"})
      if (const Json* any = part.find(keyword)) {
        schema_list(*any, part, keyword);
        add_new(part.child(keyword, *any), into_.alternatives);
      }
    done_[part.schema] = true;
  }

 private:
  // Checks the keywords of one schema. Returns whether it has keywords of its own, combinations apart.
  bool check(const Part& part) {
    bool constrains = false;
    spend_or_refuse(budget_, 1 + static_cast<int64_t>(part.schema->size()));
    for (const auto& [keyword, value] : part.schema->items()) {
      const auto scope = scope_of(keyword);
      if (!scope) part.refuse(keyword, "is a keyword that cannot be enforced: leave it out");
      if (keyword == "uniqueItems" && value != Json(false))
        part.refuse(keyword, "cannot be enforced: leave it out");
      constrains |= scope != KeywordScope::annotation && scope != KeywordScope::combination;
    }
    return constrains;
  }

  void add_new(Part part, std::vector<Part>& parts) {
    spend_or_refuse(budget_, static_cast<int64_t>(parts.size()));
    for (const Part& other : parts)
      if (other.schema == part.schema) return;
    parts.push_back(std::move(part));
  }

  Conjunction& into_;
  CompileBudget& budget_;
  std::map<const Json*, bool> done_;  // false while a schema is being added: meeting it again is a cycle
};

}  // namespace

std::vector<const Json*> Conjunction::key() const {
  std::vector<const Json*> schemas;
  for (const Part& part : parts) schemas.push_back(part.schema);
  schemas.push_back(nullptr);
  for (const Part& part : alternatives) schemas.push_back(part.schema);
  return schemas;
}

void add_schema(const Part& schema, Conjunction& into, CompileBudget& budget) {
  Flattener(into, budget).add(schema);
}

const Json& schema_list(const Json& value, const Part& part, std::string_view keyword) {
  if (!value.is_array() || value.empty()) part.refuse(keyword, "must be a list of schemas, at least one");
  return value;
}

void spend_or_refuse(CompileBudget& budget, int64_t steps) {
  if (!budget.spend(steps))
    throw SchemaRefused{"the schema is too large to enforce: shorten it, its repeats and its enumerations"};
}

}  // namespace fathom::grammar
