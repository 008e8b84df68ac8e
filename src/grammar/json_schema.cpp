#include "grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/strict_json.h"
#include "grammar/json_string.h"
#include "grammar/number_range.h"
#include "grammar/regex_dfa.h"
#include "grammar/schema_conjunction.h"
#include "grammar/schema_document.h"
#include "grammar/schema_types.h"
#include "grammar/string_format.h"

namespace fathom::grammar {
namespace {

using Json  = SchemaJson;
using Part  = SchemaPart;
using Parts = std::vector<Part>;  // schemas that all hold
using Scope = KeywordScope;

constexpr int64_t kBudget  = 2'000'000;  // half a second, 100 MB
constexpr double kMaxCount = 1e9;        // value of a keyword such as maxItems
constexpr size_t kMaxNodes = 50'000;

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
      std::vector<NodeId> alternatives                                 = expand_choice(conjunction);
      std::get<JsonGrammar::Choice>(grammar_.nodes[node]).alternatives = std::move(alternatives);
    }
    grammar_.root = root;
    if (const Status finished = grammar_.compile(budget_); !finished)
      throw SchemaRefused{finished.error().message};
    return std::move(grammar_);
  }

 private:
  void spend(int64_t steps) { spend_or_refuse(budget_, steps); }
  NodeId add(JsonGrammar::Node node) {
    spend(10);
    grammar_.nodes.push_back(std::move(node));
    if (grammar_.nodes.size() > kMaxNodes)
      throw SchemaRefused{fmt::format("the schema has more than {} parts once it is written out", kMaxNodes)};
    return static_cast<NodeId>(grammar_.nodes.size() - 1);
  }
  // Returns the node made for an equal key before, else makes one.
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
  // The intersection of the ranges of all parts.
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

  // The values that all parts admit; every value where there is no part.
  NodeId value(const Parts& parts) {
    Conjunction conjunction;
    for (const Part& part : parts) add_schema(part, conjunction, budget_);
    return value(std::move(conjunction));
  }

  // Equal conjunctions share one node, so recursive references terminate. The node is expanded later, so that
  // a chain of schemas does not become deep recursion.
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

  std::vector<NodeId> expand_choice(const Conjunction& conjunction) {
    if (conjunction.alternatives.empty()) return compile_by_type(conjunction.parts);
    Conjunction rest        = conjunction;
    const Part alternatives = std::move(rest.alternatives.back());
    rest.alternatives.pop_back();
    std::vector<NodeId> nodes;
    for (size_t i = 0; i < alternatives.schema->size(); ++i) {
      spend(static_cast<int64_t>(1 + rest.parts.size()));
      Conjunction one = rest;
      add_schema(alternatives.child(std::to_string(i), (*alternatives.schema)[i]), one, budget_);
      nodes.push_back(value(std::move(one)));
    }
    return nodes;
  }

  std::vector<NodeId> compile_by_type(const Parts& parts) {
    const JsonTypes types = types_of(parts);
    bool enumerated       = false;
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

  // The values that occur in every enumeration.
  std::vector<NodeId> enumeration(const Parts& parts, const JsonTypes& types) {
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
      if (!has_type(*value, types)) continue;
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
      for (const Json& item : value) array.prefix.push_back(exactly(item));
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
    auto dfa = compile_literals(std::move(texts), budget_);
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
                                          in_quotes(value.get_ref<const std::string&>()), kFormats));
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
      auto dfa = compile_string_regex(pattern, {min, max}, budget_);
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
    const NodeId object       = add(JsonGrammar::Object{.additional = any_});
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
      first = std::max(first, schema_list(value, part, "prefixItems").size());
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
      array.prefix.push_back(value(item));
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
    if (!has_names || !others.empty()) object.additional = value(others);
    expect_trivial_counts(object, parts);
    return add(std::move(object));
  }

  // The automaton does not count properties, so bounds are accepted only where they always hold.
  void expect_trivial_counts(const JsonGrammar::Object& object, const Parts& parts) {
    const auto required = std::count_if(object.properties.begin(), object.properties.end(),
                                        [](const auto& property) { return property.required; });
    each(parts, "minProperties", [&](const Json& value, const Part& part) {
      if (count(value, part, "minProperties") > required)
        part.refuse("minProperties", "cannot be enforced: name the properties in required");
    });
    each(parts, "maxProperties", [&](const Json& value, const Part& part) {
      if (object.additional != kNever ||
          count(value, part, "maxProperties") < static_cast<int64_t>(object.properties.size()))
        part.refuse("maxProperties",
                    "cannot be enforced: name the properties and set additionalProperties to false");
    });
  }

  CompileBudget budget_{kBudget};
  JsonGrammar grammar_;
  std::map<std::string, NodeId> shared_;
  std::map<std::vector<const Json*>, NodeId> values_;  // by Conjunction::key(), each a choice
  std::vector<std::pair<Conjunction, NodeId>> open_;   // nodes of values_ still to be expanded
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
    return Error{fmt::format("{}: {}", in_quotes(name), refused.message)};
  }
}

}  // namespace fathom::grammar
