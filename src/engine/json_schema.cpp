#include "engine/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/number_range.h"
#include "engine/string_pattern.h"
#include "model/strict_json.h"
#include "model/utf8.h"

namespace fathom::engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxText     = 256 * 1024;
constexpr size_t kMaxKeys     = 5000;  // of one object: looking one up takes time in proportion
constexpr size_t kMaxJsonNest = 64;
constexpr int kMaxNest        = 200;  // of schemas in each other, those behind allOf's references included
constexpr int64_t kBudget     = 1'000'000;
constexpr int64_t kMaxCount   = 1'000'000'000;  // of a keyword that counts
constexpr size_t kMaxNodes    = 50'000;

struct Refused {
  std::string message;
};

// JSON whose objects keep their order.
Json parse(std::string_view text) {
  if (text.size() > kMaxText) throw Refused{fmt::format("the schema has more than {} KiB", kMaxText / 1024)};
  std::vector<std::set<std::string>> keys;  // of every object that is open; an array's stay empty
  const auto on_event = [&](int, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (keys.size() == kMaxJsonNest)
          throw Refused{fmt::format("the schema is nested deeper than {}", kMaxJsonNest)};
        keys.emplace_back();
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        keys.pop_back();
        break;
      case Json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(key).second)
          throw Refused{fmt::format("the schema has {} twice in one object", model::in_quotes(key))};
        if (keys.back().size() > kMaxKeys)
          throw Refused{fmt::format("the schema has an object with more than {} keys", kMaxKeys)};
        break;
      }
      case Json::parse_event_t::value:
        break;
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), on_event);
  } catch (const Json::parse_error& e) {
    throw Refused{fmt::format("the schema is no valid JSON at byte {}", e.byte)};
  } catch (const Json::exception&) {
    throw Refused{"the schema is no valid JSON: a number in it is out of range"};
  }
}

// A schema, and where it stands.
struct Part {
  const Json* schema;
  const Json* document;  // that its references are in
  std::string place;     // "#/properties/a"
};

// Schemas that all hold.
using Parts = std::vector<Part>;

std::string below(const std::string& place, std::string_view key) {
  const std::string name = model::in_quotes(key);  // a hostile one is cut
  return place + "/" + name.substr(1, name.size() - 2);
}

enum Type { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject, kTypes };
constexpr std::array<std::string_view, kTypes> kTypeNames = {"null",   "boolean", "integer", "number",
                                                             "string", "array",   "object"};

// What a keyword speaks of.
enum class Scope { annotation, all, combination, number, string, array, object };
const std::map<std::string_view, Scope> kKeywords = {
    {"title", Scope::annotation},
    {"description", Scope::annotation},
    {"default", Scope::annotation},
    {"example", Scope::annotation},
    {"examples", Scope::annotation},
    {"$schema", Scope::annotation},
    {"$id", Scope::annotation},
    {"$comment", Scope::annotation},
    {"$anchor", Scope::annotation},
    {"$defs", Scope::annotation},
    {"definitions", Scope::annotation},
    {"deprecated", Scope::annotation},
    {"readOnly", Scope::annotation},
    {"writeOnly", Scope::annotation},
    {"contentMediaType", Scope::annotation},
    {"contentEncoding", Scope::annotation},
    {"discriminator", Scope::annotation},
    {"externalDocs", Scope::annotation},
    {"type", Scope::all},
    {"enum", Scope::all},
    {"const", Scope::all},
    {"nullable", Scope::all},
    {"$ref", Scope::combination},
    {"allOf", Scope::combination},
    {"anyOf", Scope::combination},
    {"oneOf", Scope::combination},
    {"minimum", Scope::number},
    {"maximum", Scope::number},
    {"exclusiveMinimum", Scope::number},
    {"exclusiveMaximum", Scope::number},
    {"multipleOf", Scope::number},
    {"minLength", Scope::string},
    {"maxLength", Scope::string},
    {"pattern", Scope::string},
    {"format", Scope::string},
    {"items", Scope::array},
    {"prefixItems", Scope::array},
    {"minItems", Scope::array},
    {"maxItems", Scope::array},
    {"uniqueItems", Scope::array},
    {"properties", Scope::object},
    {"required", Scope::object},
    {"additionalProperties", Scope::object},
    {"minProperties", Scope::object},
    {"maxProperties", Scope::object},
};

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
    if (const Status finished = grammar_.finish(budget_); !finished) throw Refused{finished.error().message};
    return std::move(grammar_);
  }

 private:
  [[noreturn]] static void refuse(const std::string& place, std::string_view keyword,
                                  const std::string& why) {
    throw Refused{fmt::format("the schema's {} {}", below(place, keyword), why)};
  }
  void spend(int64_t steps) {
    if (!budget_.spend(steps))
      throw Refused{"the schema is too large to enforce: shorten it, its repeats and its enumerations"};
  }
  NodeId add(JsonGrammar::Node node) {
    spend(10);
    grammar_.nodes.push_back(std::move(node));
    if (grammar_.nodes.size() > kMaxNodes)
      throw Refused{fmt::format("the schema has more than {} parts once it is written out", kMaxNodes)};
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

  static const Json* find(const Part& part, const char* keyword) {
    const auto found = part.schema->find(keyword);
    return found == part.schema->end() ? nullptr : &*found;
  }
  // Calls each(value, part) for the parts that have the keyword.
  template <class Each>
  static void each(const Parts& parts, const char* keyword, Each each) {
    for (const Part& part : parts)
      if (const Json* value = find(part, keyword)) each(*value, part);
  }
  static int64_t count(const Json& value, const Part& part, std::string_view keyword) {
    const bool is_whole =
        value.is_number_unsigned() ||
        (value.is_number_float() && value.get<double>() >= 0 && value.get<double>() <= kMaxCount &&
         value.get<double>() == static_cast<double>(value.get<int64_t>()));
    if (!is_whole) refuse(part.place, keyword, "must be a whole number, 0 or more");
    const auto number = value.is_number_float()
                            ? value.get<int64_t>()
                            : static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), kMaxCount + 1));
    if (number > kMaxCount) refuse(part.place, keyword, fmt::format("is more than {}", kMaxCount));
    return number;
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
  static Part child(const Part& part, std::string_view keyword, const Json& schema) {
    return {&schema, part.document, below(part.place, keyword)};
  }

  Part resolve(const Json& reference, const Part& part) {
    if (!reference.is_string()) refuse(part.place, "$ref", "must be a string");
    const auto& text = reference.get_ref<const std::string&>();
    if (!text.starts_with('#'))
      refuse(part.place, "$ref",
             fmt::format("is {}: only references within the schema, like '#/$defs/name', are followed",
                         model::in_quotes(text)));
    std::string pointer;
    for (size_t i = 1; i < text.size(); ++i) {  // percent-encoded, as a URI's fragment is
      const auto hex = [&](size_t at) {
        return at < text.size()
                   ? std::string_view("0123456789abcdef")
                         .find(static_cast<char>(std::tolower(static_cast<unsigned char>(text[at]))))
                   : std::string_view::npos;
      };
      if (text[i] == '%' && hex(i + 1) < 16 && hex(i + 2) < 16) {
        pointer += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
        i += 2;
      } else {
        pointer += text[i];
      }
    }
    try {
      const Json::json_pointer at(pointer);
      if (part.document->contains(at))
        return {&part.document->at(at), part.document, model::in_quotes("#" + pointer).substr(1, 96)};
    } catch (const Json::exception&) {
    }
    refuse(part.place, "$ref", fmt::format("is {}, which leads nowhere", model::in_quotes(text)));
  }

  // Checks the keywords of one schema, and returns whether it has constraints of its own, combinations apart.
  bool check(const Part& part) {
    bool constrains = false;
    spend(1 + static_cast<int64_t>(part.schema->size()));
    for (const auto& [keyword, value] : part.schema->items()) {
      const auto known = kKeywords.find(keyword);
      if (known == kKeywords.end() && keyword.starts_with("x-")) continue;
      if (known == kKeywords.end())
        refuse(part.place, keyword, "is a keyword that cannot be enforced: leave it out");
      if (keyword == "uniqueItems" && value != Json(false))
        refuse(part.place, keyword, "cannot be enforced: leave it out");
      constrains |= known->second != Scope::annotation && known->second != Scope::combination;
    }
    return constrains;
  }

  // Schemas that all hold, with their references followed and their combinations taken apart.
  struct Conjunction {
    Parts parts;                       // what they say themselves
    std::vector<Part> alternatives;    // lists of schemas: one of each list holds
    std::map<const Json*, bool> seen;  // false while its own references are followed
    bool never = false;

    std::vector<const Json*> key() const {
      std::vector<const Json*> schemas;
      for (const Part& part : parts) schemas.push_back(part.schema);
      schemas.push_back(nullptr);
      for (const Part& part : alternatives) schemas.push_back(part.schema);
      return schemas;
    }
  };

  void flatten(const Part& part, Conjunction& into, int nest = 0) {
    if (part.schema->is_boolean()) {
      into.never |= !part.schema->get<bool>();
      return;
    }
    if (!part.schema->is_object())
      throw Refused{fmt::format("the schema's {} must be an object, true or false", part.place)};
    if (const auto seen = into.seen.find(part.schema); seen != into.seen.end()) {
      if (!seen->second)
        throw Refused{fmt::format(
            "the schema's {} comes back to itself without an object or an array in between", part.place)};
      return;
    }
    if (nest > kMaxNest)
      throw Refused{fmt::format("the schema's {} is behind more than {} references", part.place, kMaxNest)};
    into.seen[part.schema] = false;
    if (check(part)) into.parts.push_back(part);
    if (const Json* reference = find(part, "$ref")) flatten(resolve(*reference, part), into, nest + 1);
    if (const Json* all = find(part, "allOf"))
      for (size_t i = 0; i < schemas(*all, part, "allOf").size(); ++i)
        flatten(child(child(part, "allOf", *all), std::to_string(i), (*all)[i]), into, nest + 1);
    for (const char* keyword : {"anyOf", "oneOf"})
      if (const Json* any = find(part, keyword)) {
        schemas(*any, part, keyword);
        into.alternatives.push_back(child(part, keyword, *any));
      }
    into.seen[part.schema] = true;
  }
  static const Json& schemas(const Json& value, const Part& part, std::string_view keyword) {
    if (!value.is_array() || value.empty())
      refuse(part.place, keyword, "must be a list of schemas, at least one");
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
    spend(static_cast<int64_t>(conjunction.parts.size() + conjunction.seen.size()));
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
      spend(static_cast<int64_t>(rest.parts.size() + rest.seen.size()));
      Conjunction one = rest;
      flatten(child(alternatives, std::to_string(i), (*alternatives.schema)[i]), one);
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
    refuse(part.place, "type",
           "must be null, boolean, integer, number, string, array or object, or a list of these");
  }

  // Those that every part admits.
  static std::array<bool, kTypes> types_of(const Parts& parts) {
    std::array<bool, kTypes> types;
    types.fill(true);
    bool given = false;
    for (const Part& part : parts) {
      const Json* type = find(part, "type");
      if (type == nullptr) continue;
      given = true;
      std::array<bool, kTypes> own{};
      if (type->is_array())
        for (const Json& name : *type) own[type_named(name, part)] = true;
      else
        own[type_named(*type, part)] = true;
      own[kInteger] |= own[kNumber];
      if (const Json* nullable = find(part, "nullable")) own[kNull] |= *nullable == Json(true);
      for (size_t i = 0; i < kTypes; ++i) types[i] = types[i] && own[i];
    }
    if (given) return types;
    std::array<bool, kTypes> spoken{};
    for (const Part& part : parts)
      for (const auto& [keyword, value] : part.schema->items()) {
        const auto known = kKeywords.find(keyword);
        if (known == kKeywords.end()) continue;
        if (known->second == Scope::number) spoken[kNumber] = spoken[kInteger] = true;
        if (known->second == Scope::string) spoken[kString] = true;
        if (known->second == Scope::array) spoken[kArray] = true;
        if (known->second == Scope::object) spoken[kObject] = true;
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
        const auto known = kKeywords.find(keyword);
        if (known != kKeywords.end() && known->second != Scope::all && known->second != Scope::annotation &&
            known->second != Scope::combination)
          refuse(part.place, keyword,
                 "cannot be enforced beside enum or const: leave out the values that it forbids");
      }
      if (const Json* list = find(part, "enum")) {
        if (!list->is_array() || list->empty())
          refuse(part.place, "enum", "must be a list of values, at least one");
        std::vector<const Json*> own;
        for (const Json& value : *list) own.push_back(&value);
        spend(static_cast<int64_t>(own.size()));
        keep(own);
      }
      if (const Json* constant = find(part, "const")) keep({constant});
      if (const Json* or_null = find(part, "nullable")) nullable |= *or_null == Json(true);
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
        if (!value.is_string()) refuse(part.place, name, "must be a string");
        auto own = value.get<std::string>();
        if (name == std::string_view("format")) {
          own = pattern_of_format(own);
          if (own.empty())
            refuse(part.place, name,
                   fmt::format("is {}, which cannot be enforced: leave it out, or use one of {}",
                               model::in_quotes(value.get_ref<const std::string&>()), kFormats));
        }
        if (by != nullptr && own != pattern)
          refuse(part.place, name,
                 "cannot be enforced beside another pattern or format: write one pattern for both");
        by      = &part;
        keyword = name;
        pattern = std::move(own);
      });
    if (by == nullptr) return add(JsonGrammar::String{min, max});
    const std::string key = fmt::format("string {} {} {}", min, max.value_or(-1), pattern);
    return shared(key, [&, min = min, max = max] {
      auto dfa = compile_string_pattern(pattern, {min, max}, budget_);
      if (!dfa) refuse(by->place, keyword, "cannot be enforced: " + dfa.error().message);
      return add(JsonGrammar::Regular{*std::move(dfa)});
    });
  }

  NodeId number(const Parts& parts, bool integer) {
    NumberRange range{.integer = integer};
    int64_t multiple = 1;
    each(parts, "multipleOf", [&](const Json& value, const Part& part) {
      if (!value.is_number() || value.get<double>() < 1 || value.get<double>() > 1000 ||
          value.get<double>() != std::floor(value.get<double>()))
        refuse(part.place, "multipleOf", "cannot be enforced unless it is a whole number from 1 to 1000");
      multiple = std::lcm(multiple, value.get<int64_t>());
      if (multiple > 1000)
        refuse(part.place, "multipleOf",
               "and others together cannot be enforced: their common multiple is above 1000");
      range.integer = true;
    });
    range.multiple_of = multiple;
    const auto bound  = [&](const char* keyword, bool exclusive, bool lower,
                           std::optional<NumberBound>& into) {
      each(parts, keyword, [&](const Json& value, const Part& part) {
        if (!value.is_number()) refuse(part.place, keyword, "must be a number");
        NumberBound own{plain_decimal(value.dump()), exclusive};
        if (own.decimal.empty())
          refuse(part.place, keyword, "cannot be enforced: it takes more than 40 digits");
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
      if (value.is_array()) refuse(part.place, "items", "must be one schema: for a tuple use prefixItems");
      rest.push_back(child(part, "items", value));
    });
    if (max) first = std::min(first, static_cast<size_t>(*max));
    for (size_t i = 0; i < first; ++i) {
      Parts item;
      for (const Part& part : parts) {
        spend(1);
        const Json* prefix = find(part, "prefixItems");
        if (prefix != nullptr && i < prefix->size())
          item.push_back(child(child(part, "prefixItems", *prefix), std::to_string(i), (*prefix)[i]));
        else if (const Json* items = find(part, "items"))
          item.push_back(child(part, "items", *items));
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
      if (!value.is_object()) refuse(part.place, "properties", "must be an object");
      has_names = true;
      for (const auto& [name, schema] : value.items()) named(name);
    });
    each(parts, "additionalProperties", [&](const Json& value, const Part& part) {
      others.push_back(child(part, "additionalProperties", value));
    });
    each(parts, "required", [&](const Json& value, const Part& part) {
      const bool are_names =
          value.is_array() &&
          std::all_of(value.begin(), value.end(), [](const Json& name) { return name.is_string(); });
      if (!are_names) refuse(part.place, "required", "must be a list of names");
      for (const Json& name : value) named(name.get_ref<const std::string&>()).required = true;
    });
    std::vector<Parts> schemas_of(object.properties.size());
    for (const Part& part : parts) {
      std::vector<const Json*> own(object.properties.size());
      const Json* properties = find(part, "properties");
      if (properties != nullptr)
        for (const auto& [name, schema] : properties->items()) own[index[name]] = &schema;
      const Json* additional = find(part, "additionalProperties");
      for (size_t i = 0; i < own.size(); ++i) {
        spend(1);
        if (own[i] != nullptr)
          schemas_of[i].push_back(
              child(child(part, "properties", *properties), object.properties[i].name, *own[i]));
        else if (additional != nullptr)
          schemas_of[i].push_back(child(part, "additionalProperties", *additional));
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
        refuse(part.place, "minProperties", "cannot be enforced: name the properties in required");
    });
    each(parts, "maxProperties", [&](const Json& value, const Part& part) {
      if (object.others != kNever ||
          count(value, part, "maxProperties") < static_cast<int64_t>(object.properties.size()))
        refuse(part.place, "maxProperties",
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
    const Json document = parse(schema);
    Compiler compiler;
    const NodeId root = compiler.schema(document);
    return std::make_shared<const JsonGrammar>(std::move(compiler).finish(root));
  } catch (const Refused& refused) {
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
      const NodeId arguments = compiler.schema(documents.emplace_back(parse(schema)));
      calls.push_back(compiler.object(
          {{"name", compiler.literal(canonical_json_string(own)), true}, {"arguments", arguments, true}}));
    }
    const NodeId root = compiler.choice(std::move(calls));
    return std::make_shared<const JsonGrammar>(std::move(compiler).finish(root));
  } catch (const Refused& refused) {
    return Error{fmt::format("{}: {}", model::in_quotes(name), refused.message)};
  }
}

}  // namespace fathom::engine
