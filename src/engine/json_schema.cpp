#include "engine/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "engine/number_range.h"
#include "engine/schema_document.h"
#include "engine/string_pattern.h"
#include "model/strict_json.h"

namespace fathom::engine {
namespace {

using Json  = SchemaJson;
using Part  = SchemaPart;
using Parts = std::vector<Part>;  // that all hold
using Scope = KeywordScope;

constexpr int kMaxNest     = 200;        // of references and combinations in one schema
constexpr int64_t kBudget  = 2'000'000;  // half a second, 100 MB
constexpr double kMaxCount = 1e9;        // of a keyword that counts
constexpr size_t kMaxNodes = 50'000;

enum Type { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject, kTypes };
constexpr std::array<std::string_view, kTypes> kTypeNames = {"null",   "boolean", "integer", "number",
                                                             "string", "array",   "object"};

class Compiler {
 public:
  // `document` must stay where it is until finish().
  NodeId schema(const Json& document) { return value({{&document, &document, "#"}}); }

  NodeId object(std::vector<JsonGrammar::Property> properties) {
    return add(JsonGrammar::Object{.properties = std::move(properties)});
  }
  NodeId choice(std::vector<NodeId> alternatives) {
    return add(JsonGrammar::Choice{std::move(alternatives)});
  }
  NodeId literal(const std::string& text) { return literals({text}); }

  JsonGrammar finish(NodeId root) && {
    while (!open_.empty()) {
      const auto [conjunction, node] = std::move(open_.back());
      open_.pop_back();
      std::vector<NodeId> alternatives                                 = written_out(conjunction);
      std::get<JsonGrammar::Choice>(grammar_.nodes[node]).alternatives = std::move(alternatives);
    }
    grammar_.root = root;
    if (const Status finished = grammar_.finish(budget_); !finished)
      throw SchemaRefused{finished.error().message};
    return std::move(grammar_);
  }

 private:
  void spend(int64_t steps) {
    if (!budget_.spend(steps))
      throw SchemaRefused{"the schema is too large to enforce: shorten it, its repeats and its enumerations"};
  }
  NodeId add(JsonGrammar::Node node) {
    spend(10);
    grammar_.nodes.push_back(std::move(node));
    if (grammar_.nodes.size() > kMaxNodes)
      throw SchemaRefused{fmt::format("the schema has more than {} parts once it is written out", kMaxNodes)};
    return static_cast<NodeId>(grammar_.nodes.size() - 1);
  }
  // One node for all that are alike.
  template <class Make>
  NodeId shared(const std::string& key, Make make) {
    if (const auto found = shared_.find(key); found != shared_.end()) return found->second;
    const NodeId node = make();
    shared_.emplace(key, node);
    return node;
  }

  // Calls each(value, part) for the parts that have the keyword.
  template <class Each>
  static void each(const Parts& parts, const char* keyword, Each each) {
    for (const Part& part : parts)
      if (const Json* value = part.find(keyword)) each(*value, part);
  }
  static int64_t count(const Json& value, const Part& part, std::string_view keyword) {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (number < 0 || number != std::floor(number)) part.refuse(keyword, "must be a whole number, 0 or more");
    if (number > kMaxCount) part.refuse(keyword, fmt::format("is more than {}", kMaxCount));
    return static_cast<int64_t>(number);
  }
  // The narrowest of all parts.
  static std::pair<int64_t, std::optional<int64_t>> counts(const Parts& parts, const char* least,
                                                           const char* most) {
    int64_t min = 0;
    std::optional<int64_t> max;
    each(parts, least,
         [&](const Json& value, const Part& part) { min = std::max(min, count(value, part, least)); });
    each(parts, most, [&](const Json& value, const Part& part) {
      const int64_t bound = count(value, part, most);
      max                 = std::min(max.value_or(bound), bound);
    });
    return {min, max};
  }

  // Checks the keywords of one schema, and returns whether it has constraints of its own, combinations apart.
  bool check(const Part& part) {
    bool constrains = false;
    spend(1 + static_cast<int64_t>(part.schema->size()));
    for (const auto& [keyword, value] : part.schema->items()) {
      const auto scope = scope_of(keyword);
      if (!scope) part.refuse(keyword, "is a keyword that cannot be enforced: leave it out");
      if (keyword == "uniqueItems" && value != Json(false))
        part.refuse(keyword, "cannot be enforced: leave it out");
      constrains |= scope != Scope::annotation && scope != Scope::combination;
    }
    return constrains;
  }

  // Schemas that all hold, with their references followed and their combinations taken apart.
  struct Conjunction {
    Parts parts;         // what they say themselves
    Parts alternatives;  // lists of schemas: one of each list holds
    bool never = false;

    std::vector<const Json*> key() const {
      std::vector<const Json*> schemas;
      for (const Part& part : parts) schemas.push_back(part.schema);
      schemas.push_back(nullptr);
      for (const Part& part : alternatives) schemas.push_back(part.schema);
      return schemas;
    }
  };

  void flatten(const Part& part, Conjunction& into) {
    std::map<const Json*, bool> seen;
    flatten(part, into, seen, 0);
  }
  // `seen`: schemas on the way here, and true for those that are done.
  void flatten(const Part& part, Conjunction& into, std::map<const Json*, bool>& seen, int nest) {
    if (part.schema->is_boolean()) {
      into.never |= !part.schema->get<bool>();
      return;
    }
    if (!part.schema->is_object())
      throw SchemaRefused{fmt::format("the schema's {} must be an object, true or false", part.place)};
    const auto [place, is_new] = seen.try_emplace(part.schema, false);
    if (!is_new && !place->second)
      throw SchemaRefused{fmt::format(
          "the schema's {} comes back to itself without an object or an array in between", part.place)};
    if (!is_new) return;
    if (nest > kMaxNest)
      throw SchemaRefused{
          fmt::format("the schema's {} is behind more than {} references", part.place, kMaxNest)};
    if (check(part)) add_new(part, into.parts);
    if (const Json* reference = part.find("$ref")) flatten(part.resolve(*reference), into, seen, nest + 1);
    if (const Json* all = part.find("allOf"))
      for (size_t i = 0; i < schemas(*all, part, "allOf").size(); ++i)
        flatten(part.child("allOf", *all).child(std::to_string(i), (*all)[i]), into, seen, nest + 1);
    for (const char* keyword : {"anyOf", "oneOf"})
      if (const Json* any = part.find(keyword)) {
        schemas(*any, part, keyword);
        add_new(part.child(keyword, *any), into.alternatives);
      }
    seen[part.schema] = true;
  }
  void add_new(Part part, Parts& parts) {
    spend(static_cast<int64_t>(parts.size()));
    for (const Part& other : parts)
      if (other.schema == part.schema) return;
    parts.push_back(std::move(part));
  }
  static const Json& schemas(const Json& value, const Part& part, std::string_view keyword) {
    if (!value.is_array() || value.empty()) part.refuse(keyword, "must be a list of schemas, at least one");
    return value;
  }

  // A value that all of these admit; any value where there are none.
  NodeId value(const Parts& parts) {
    Conjunction conjunction;
    for (const Part& part : parts) flatten(part, conjunction);
    return value(std::move(conjunction));
  }

  // One node for the same schemas, whatever the way to them: so circles close. It is written out later, lest
  // a chain of schemas becomes a deep stack.
  NodeId value(Conjunction conjunction) {
    if (conjunction.never) return kNever;
    if (conjunction.parts.empty() && conjunction.alternatives.empty()) return any();
    spend(static_cast<int64_t>(1 + conjunction.parts.size()));
    const auto [place, is_new] = values_.try_emplace(conjunction.key(), kNever);
    if (is_new) {
      place->second = choice({});
      open_.push_back({std::move(conjunction), place->second});
    }
    return place->second;
  }

  std::vector<NodeId> written_out(const Conjunction& conjunction) {
    if (conjunction.alternatives.empty()) return without_alternatives(conjunction.parts);
    Conjunction rest        = conjunction;
    const Part alternatives = std::move(rest.alternatives.back());
    rest.alternatives.pop_back();
    std::vector<NodeId> nodes;
    for (size_t i = 0; i < alternatives.schema->size(); ++i) {
      spend(static_cast<int64_t>(1 + rest.parts.size()));
      Conjunction one = rest;
      flatten(alternatives.child(std::to_string(i), (*alternatives.schema)[i]), one);
      nodes.push_back(value(std::move(one)));
    }
    return nodes;
  }

  std::vector<NodeId> without_alternatives(const Parts& parts) {
    std::array<bool, kTypes> types = types_of(parts);
    bool enumerated                = false;
    each(parts, "enum", [&](const Json&, const Part&) { enumerated = true; });
    each(parts, "const", [&](const Json&, const Part&) { enumerated = true; });
    if (enumerated) return enumeration(parts, types);
    std::vector<NodeId> nodes;
    if (types[kString]) nodes.push_back(string(parts));
    if (types[kObject]) nodes.push_back(object(parts));
    if (types[kArray]) nodes.push_back(array(parts));
    if (types[kNumber] || types[kInteger]) nodes.push_back(number(parts, !types[kNumber]));
    if (types[kBoolean]) nodes.push_back(boolean());
    if (types[kNull]) nodes.push_back(null());
    return nodes;
  }

  static Type type_named(const Json& name, const Part& part) {
    for (int type = 0; type < kTypes; ++type)
      if (name == kTypeNames[static_cast<size_t>(type)]) return static_cast<Type>(type);
    part.refuse("type",
                "must be null, boolean, integer, number, string, array or object, or a list of these");
  }

  // Those that every part admits.
  static std::array<bool, kTypes> types_of(const Parts& parts) {
    std::array<bool, kTypes> types;
    types.fill(true);
    bool given = false;
    for (const Part& part : parts) {
      const Json* type = part.find("type");
      if (type == nullptr) continue;
      given = true;
      std::array<bool, kTypes> own{};
      if (type->is_array())
        for (const Json& name : *type) own[type_named(name, part)] = true;
      else
        own[type_named(*type, part)] = true;
      own[kInteger] |= own[kNumber];
      if (const Json* nullable = part.find("nullable")) own[kNull] |= *nullable == Json(true);
      for (size_t i = 0; i < kTypes; ++i) types[i] = types[i] && own[i];
    }
    if (given) return types;
    std::array<bool, kTypes> spoken{};
    for (const Part& part : parts)
      for (const auto& [keyword, value] : part.schema->items()) {
        const auto scope = scope_of(keyword);
        if (scope == Scope::number) spoken[kNumber] = spoken[kInteger] = true;
        if (scope == Scope::string) spoken[kString] = true;
        if (scope == Scope::array) spoken[kArray] = true;
        if (scope == Scope::object) spoken[kObject] = true;
        if (keyword == "nullable" && value == Json(true)) spoken[kNull] = true;
      }
    spoken[kNull] = spoken[kNull] && std::count(spoken.begin(), spoken.end(), true) > 1;
    return std::count(spoken.begin(), spoken.end(), true) > 0 ? spoken : types;
  }

  static bool is_of(const Json& value, const std::array<bool, kTypes>& types) {
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

  // The values that all enumerations have.
  std::vector<NodeId> enumeration(const Parts& parts, const std::array<bool, kTypes>& types) {
    std::optional<std::vector<const Json*>> values;
    const auto keep = [&](const std::vector<const Json*>& own) {
      if (!values) {
        values = own;
        return;
      }
      spend(static_cast<int64_t>(values->size() * own.size()));
      std::erase_if(*values, [&](const Json* value) {
        return std::none_of(own.begin(), own.end(), [&](const Json* other) { return *other == *value; });
      });
    };
    bool nullable = false;
    for (const Part& part : parts) {
      for (const auto& [keyword, value] : part.schema->items()) {
        const auto scope = scope_of(keyword);
        if (scope != Scope::all && scope != Scope::annotation && scope != Scope::combination)
          part.refuse(keyword,
                      "cannot be enforced beside enum or const: leave out the values that it forbids");
      }
      if (const Json* list = part.find("enum")) {
        if (!list->is_array() || list->empty()) part.refuse("enum", "must be a list of values, at least one");
        std::vector<const Json*> own;
        for (const Json& value : *list) own.push_back(&value);
        spend(static_cast<int64_t>(own.size()));
        keep(own);
      }
      if (const Json* constant = part.find("const")) keep({constant});
      if (const Json* or_null = part.find("nullable")) nullable |= *or_null == Json(true);
    }
    std::vector<NodeId> nodes;
    std::vector<std::string> scalars;
    for (const Json* value : *values) {
      if (!is_of(*value, types)) continue;
      if (value->is_structured())
        nodes.push_back(exactly(*value));
      else
        scalars.push_back(text_of(*value));
    }
    if (nullable) scalars.push_back("null");
    if (!scalars.empty()) nodes.push_back(literals(std::move(scalars)));
    return nodes;
  }

  static std::string text_of(const Json& scalar) {
    return scalar.is_string() ? canonical_json_string(scalar.get_ref<const std::string&>()) : scalar.dump();
  }

  NodeId exactly(const Json& value) {
    if (value.is_array()) {
      JsonGrammar::Array array{.min = static_cast<int64_t>(value.size())};
      for (const Json& item : value) array.first.push_back(exactly(item));
      return add(std::move(array));
    }
    if (value.is_object()) {
      JsonGrammar::Object object;
      for (const auto& [name, member] : value.items())
        object.properties.push_back({name, exactly(member), true});
      return add(std::move(object));
    }
    return literals({text_of(value)});
  }

  NodeId literals(std::vector<std::string> texts) {
    auto dfa = dfa_of_literals(std::move(texts), budget_);
    if (!dfa) spend(1);  // refuses
    return add(JsonGrammar::Regular{std::move(*dfa)});
  }

  NodeId string(const Parts& parts) {
    const auto [min, max] = counts(parts, "minLength", "maxLength");
    const Part* by        = nullptr;
    const char* keyword   = "";
    std::string pattern;
    for (const char* name : {"pattern", "format"})
      each(parts, name, [&](const Json& value, const Part& part) {
        if (!value.is_string()) part.refuse(name, "must be a string");
        auto own = value.get<std::string>();
        if (name == std::string_view("format")) {
          own = pattern_of_format(own);
          if (own.empty())
            part.refuse(name, fmt::format("is {}, which cannot be enforced: leave it out, or use one of {}",
                                          model::in_quotes(value.get_ref<const std::string&>()), kFormats));
        }
        if (by != nullptr && own != pattern)
          part.refuse(name,
                      "cannot be enforced beside another pattern or format: write one pattern for both");
        by      = &part;
        keyword = name;
        pattern = std::move(own);
      });
    if (by == nullptr) return add(JsonGrammar::String{min, max});
    const std::string key = fmt::format("string {} {} {}", min, max.value_or(-1), pattern);
    return shared(key, [&, min = min, max = max] {
      auto dfa = compile_string_pattern(pattern, {min, max}, budget_);
      if (!dfa) by->refuse(keyword, "cannot be enforced: " + dfa.error().message);
      return add(JsonGrammar::Regular{*std::move(dfa)});
    });
  }

  NodeId number(const Parts& parts, bool integer) {
    NumberRange range{.integer = integer};
    int64_t multiple = 1;
    each(parts, "multipleOf", [&](const Json& value, const Part& part) {
      if (!value.is_number() || value.get<double>() < 1 || value.get<double>() > 1000 ||
          value.get<double>() != std::floor(value.get<double>()))
        part.refuse("multipleOf", "cannot be enforced unless it is a whole number from 1 to 1000");
      multiple = std::lcm(multiple, value.get<int64_t>());
      if (multiple > 1000)
        part.refuse("multipleOf",
                    "and others together cannot be enforced: their common multiple is above 1000");
      range.integer = true;
    });
    range.multiple_of = multiple;
    const auto bound  = [&](const char* keyword, bool exclusive, bool lower,
                           std::optional<NumberBound>& into) {
      each(parts, keyword, [&](const Json& value, const Part& part) {
        if (!value.is_number()) part.refuse(keyword, "must be a number");
        NumberBound own{plain_decimal(value.dump()), exclusive};
        if (into) {
          const int order = compare_decimals(own.decimal, into->decimal);
          if (order == 0 ? !exclusive : (order < 0) == lower) return;
        }
        into = std::move(own);
      });
    };
    bound("minimum", false, true, range.min);
    bound("exclusiveMinimum", true, true, range.min);
    bound("maximum", false, false, range.max);
    bound("exclusiveMaximum", true, false, range.max);
    const auto name_of = [](const std::optional<NumberBound>& bound) {
      return bound ? (bound->exclusive ? "(" : "[") + bound->decimal : "";
    };
    const std::string key =
        fmt::format("number {} {} {} {}", range.integer, multiple, name_of(range.min), name_of(range.max));
    return shared(key, [&] {
      auto dfa = compile_number_range(range, budget_);
      if (!dfa) spend(1);  // refuses
      return add(JsonGrammar::Regular{std::move(*dfa)});
    });
  }

  NodeId boolean() {
    return shared("boolean", [&] { return literals({"true", "false"}); });
  }
  NodeId null() {
    return shared("null", [&] { return literals({"null"}); });
  }

  NodeId any() {
    if (any_ != kNever) return any_;
    any_                      = choice({});
    const NodeId object       = add(JsonGrammar::Object{.others = any_});
    const NodeId array        = add(JsonGrammar::Array{.rest = any_});
    const NodeId string       = add(JsonGrammar::String{});
    std::vector<NodeId> nodes = {string, object, array, number({}, false), boolean(), null()};
    std::get<JsonGrammar::Choice>(grammar_.nodes[any_]).alternatives = std::move(nodes);
    return any_;
  }

  NodeId array(const Parts& parts) {
    const auto [min, max] = counts(parts, "minItems", "maxItems");
    JsonGrammar::Array array{.min = min, .max = max};
    size_t first = 0;
    Parts rest;
    each(parts, "prefixItems", [&](const Json& value, const Part& part) {
      first = std::max(first, schemas(value, part, "prefixItems").size());
    });
    each(parts, "items", [&](const Json& value, const Part& part) {
      if (value.is_array()) part.refuse("items", "must be one schema: for a tuple use prefixItems");
      rest.push_back(part.child("items", value));
    });
    if (max) first = std::min(first, static_cast<size_t>(*max));
    for (size_t i = 0; i < first; ++i) {
      Parts item;
      for (const Part& part : parts) {
        spend(1);
        const Json* prefix = part.find("prefixItems");
        if (prefix != nullptr && i < prefix->size())
          item.push_back(part.child("prefixItems", *prefix).child(std::to_string(i), (*prefix)[i]));
        else if (const Json* items = part.find("items"))
          item.push_back(part.child("items", *items));
      }
      array.first.push_back(value(item));
    }
    const bool closed = first > 0 && rest.empty() && min <= static_cast<int64_t>(first);
    if (!closed) array.rest = value(rest);
    return add(std::move(array));
  }

  NodeId object(const Parts& parts) {
    JsonGrammar::Object object;
    std::map<std::string_view, size_t> index;
    const auto named = [&](const std::string& name) -> JsonGrammar::Property& {
      spend(1);
      const auto [place, is_new] = index.try_emplace(name, object.properties.size());
      if (is_new) object.properties.push_back({.name = name});
      return object.properties[place->second];
    };
    Parts others;
    bool has_names = false;
    each(parts, "properties", [&](const Json& value, const Part& part) {
      if (!value.is_object()) part.refuse("properties", "must be an object");
      has_names = true;
      for (const auto& [name, schema] : value.items()) named(name);
    });
    each(parts, "additionalProperties", [&](const Json& value, const Part& part) {
      others.push_back(part.child("additionalProperties", value));
    });
    each(parts, "required", [&](const Json& value, const Part& part) {
      const bool are_names =
          value.is_array() &&
          std::all_of(value.begin(), value.end(), [](const Json& name) { return name.is_string(); });
      if (!are_names) part.refuse("required", "must be a list of names");
      for (const Json& name : value) named(name.get_ref<const std::string&>()).required = true;
    });
    std::vector<Parts> schemas_of(object.properties.size());
    for (const Part& part : parts) {
      std::vector<const Json*> own(object.properties.size());
      const Json* properties = part.find("properties");
      if (properties != nullptr)
        for (const auto& [name, schema] : properties->items()) own[index[name]] = &schema;
      const Json* additional = part.find("additionalProperties");
      for (size_t i = 0; i < own.size(); ++i) {
        spend(1);
        if (own[i] != nullptr)
          schemas_of[i].push_back(
              part.child("properties", *properties).child(object.properties[i].name, *own[i]));
        else if (additional != nullptr)
          schemas_of[i].push_back(part.child("additionalProperties", *additional));
      }
    }
    for (size_t i = 0; i < schemas_of.size(); ++i) object.properties[i].value = value(schemas_of[i]);
    if (!has_names || !others.empty()) object.others = value(others);
    expect_trivial_counts(object, parts);
    return add(std::move(object));
  }

  // How many properties an object has is not counted while it is written.
  void expect_trivial_counts(const JsonGrammar::Object& object, const Parts& parts) {
    const auto required = std::count_if(object.properties.begin(), object.properties.end(),
                                        [](const auto& property) { return property.required; });
    each(parts, "minProperties", [&](const Json& value, const Part& part) {
      if (count(value, part, "minProperties") > required)
        part.refuse("minProperties", "cannot be enforced: name the properties in required");
    });
    each(parts, "maxProperties", [&](const Json& value, const Part& part) {
      if (object.others != kNever ||
          count(value, part, "maxProperties") < static_cast<int64_t>(object.properties.size()))
        part.refuse("maxProperties",
                    "cannot be enforced: name the properties and set additionalProperties to false");
    });
  }

  CompileBudget budget_{kBudget};
  JsonGrammar grammar_;
  std::map<std::string, NodeId> shared_;
  std::map<std::vector<const Json*>, NodeId> values_;  // by Conjunction::key(), each a choice
  std::vector<std::pair<Conjunction, NodeId>> open_;   // of these, still to be written out
  NodeId any_ = kNever;
};

}  // namespace

Result<std::shared_ptr<const JsonGrammar>> compile_json_schema(std::string_view schema) {
  try {
    const Json document = parse_schema(schema);
    Compiler compiler;
    const NodeId root = compiler.schema(document);
    return std::make_shared<const JsonGrammar>(std::move(compiler).finish(root));
  } catch (const SchemaRefused& refused) {
    return Error{refused.message};
  }
}

Result<std::shared_ptr<const JsonGrammar>> compile_named_schemas(std::span<const NamedSchema> named) {
  std::string_view name;
  try {
    std::deque<Json> documents;
    Compiler compiler;
    std::vector<NodeId> calls;
    for (const auto& [own, schema] : named) {
      name                   = own;
      const NodeId arguments = compiler.schema(documents.emplace_back(parse_schema(schema)));
      calls.push_back(compiler.object(
          {{"name", compiler.literal(canonical_json_string(own)), true}, {"arguments", arguments, true}}));
    }
    const NodeId root = compiler.choice(std::move(calls));
    return std::make_shared<const JsonGrammar>(std::move(compiler).finish(root));
  } catch (const SchemaRefused& refused) {
    return Error{fmt::format("{}: {}", model::in_quotes(name), refused.message)};
  }
}

}  // namespace fathom::engine
