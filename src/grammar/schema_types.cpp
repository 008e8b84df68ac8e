#include "grammar/schema_types.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace fathom::grammar {
namespace {

using Json = SchemaJson;
using Part = SchemaPart;

constexpr std::array<std::string_view, kJsonTypes> kTypeNames = {"null",   "boolean", "integer", "number",
                                                                 "string", "array",   "object"};

JsonType type_named(const Json& name, const Part& part) {
  for (int type = 0; type < kJsonTypes; ++type)
    if (name == kTypeNames[static_cast<size_t>(type)]) return static_cast<JsonType>(type);
  part.refuse("type", "must be null, boolean, integer, number, string, array or object, or a list of these");
}

}  // namespace

JsonTypes types_of(std::span<const Part> parts) {
  JsonTypes types;
  types.fill(true);
  bool given = false;
  for (const Part& part : parts) {
    const Json* type = part.find("type");
    if (type == nullptr) continue;
    given = true;
    JsonTypes own{};
    if (type->is_array())
      for (const Json& name : *type) own[type_named(name, part)] = true;
    else
      own[type_named(*type, part)] = true;
    own[kInteger] |= own[kNumber];
    if (const Json* nullable = part.find("nullable")) own[kNull] |= *nullable == Json(true);
    for (size_t i = 0; i < kJsonTypes; ++i) types[i] = types[i] && own[i];
  }
  if (given) return types;
  JsonTypes implied{};  // by keywords
  for (const Part& part : parts)
    for (const auto& [keyword, value] : part.schema->items()) {
      const auto scope = scope_of(keyword);
      if (scope == KeywordScope::number) implied[kNumber] = implied[kInteger] = true;
      if (scope == KeywordScope::string) implied[kString] = true;
      if (scope == KeywordScope::array) implied[kArray] = true;
      if (scope == KeywordScope::object) implied[kObject] = true;
      if (keyword == "nullable" && value == Json(true)) implied[kNull] = true;
    }
  implied[kNull] = implied[kNull] && std::count(implied.begin(), implied.end(), true) > 1;
  return std::count(implied.begin(), implied.end(), true) > 0 ? implied : types;
}

bool has_type(const Json& value, const JsonTypes& types) {
  switch (value.type()) {
    case Json::value_t::null:
      return types[kNull];
    case Json::value_t::boolean:
      return types[kBoolean];
    case Json::value_t::string:
      return types[kString];
    case Json::value_t::array:
      return types[kArray];
    case Json::value_t::object:
      return types[kObject];
    case Json::value_t::number_float:
      return types[kNumber] || (types[kInteger] && value.get<double>() == std::floor(value.get<double>()));
    default:
      return types[kNumber] || types[kInteger];
  }
}

}  // namespace fathom::grammar
