// For tests: a plain JSON Schema validator, written from the specification, that compiled grammars are
// compared with; and random schemas with instances.
#pragma once

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <vector>

namespace fathom::grammar {

using OrderedJson = nlohmann::ordered_json;

// Length in code points.
inline int64_t code_points(const std::string& text) {
  int64_t count = 0;
  for (const char c : text) count += (c & 0xC0) != 0x80;
  return count;
}

inline bool has_type(const std::string& type, const OrderedJson& value) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  return value.is_number_integer() ||
         (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
}

// Patterns must have the same meaning in std::regex, so only ASCII text and classes.
inline bool validates(const OrderedJson& schema, const OrderedJson& value, const OrderedJson& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  const auto all = [&](const char* keyword, auto holds) {
    return !schema.contains(keyword) || holds(schema[keyword]);
  };
  const auto holds_for = [&](const OrderedJson& other) { return validates(other, value, root); };
  if (!all("$ref", [&](const auto& ref) {
        return holds_for(
            root.at(nlohmann::ordered_json::json_pointer(ref.template get<std::string>().substr(1))));
      }))
    return false;
  if (!all("type", [&](const OrderedJson& type) {
        if (schema.value("nullable", false) && value.is_null()) return true;
        if (type.is_string()) return has_type(type, value);
        return std::any_of(type.begin(), type.end(), [&](const auto& one) { return has_type(one, value); });
      }))
    return false;
  if (!all("enum", [&](const auto& list) { return std::count(list.begin(), list.end(), value) > 0; }))
    return false;
  if (!all("const", [&](const auto& constant) { return constant == value; })) return false;
  if (!all("allOf", [&](const auto& list) { return std::all_of(list.begin(), list.end(), holds_for); }))
    return false;
  for (const char* any : {"anyOf", "oneOf"})
    if (!all(any, [&](const auto& list) { return std::any_of(list.begin(), list.end(), holds_for); }))
      return false;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (code_points(text) < schema.value("minLength", int64_t{0})) return false;
    if (code_points(text) > schema.value("maxLength", INT64_MAX)) return false;
    if (!all("pattern", [&](const auto& pattern) {
          return std::regex_search(text, std::regex(pattern.template get<std::string>()));
        }))
      return false;
  }
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (!all("minimum", [&](const auto& bound) { return number >= bound.template get<double>(); }))
      return false;
    if (!all("maximum", [&](const auto& bound) { return number <= bound.template get<double>(); }))
      return false;
    if (!all("exclusiveMinimum", [&](const auto& bound) { return number > bound.template get<double>(); }))
      return false;
    if (!all("exclusiveMaximum", [&](const auto& bound) { return number < bound.template get<double>(); }))
      return false;
    if (!all("multipleOf", [&](const auto& of) { return std::fmod(number, of.template get<double>()) == 0; }))
      return false;
  }
  if (value.is_array()) {
    const auto count = static_cast<int64_t>(value.size());
    if (count < schema.value("minItems", int64_t{0}) || count > schema.value("maxItems", INT64_MAX))
      return false;
    const OrderedJson prefix = schema.value("prefixItems", OrderedJson::array());
    const OrderedJson items  = schema.value("items", OrderedJson(true));
    for (size_t i = 0; i < value.size(); ++i)
      if (!validates(i < prefix.size() ? prefix[i] : items, value[i], root)) return false;
  }
  if (value.is_object()) {
    const OrderedJson properties = schema.value("properties", OrderedJson::object());
    const OrderedJson others     = schema.value("additionalProperties", OrderedJson(true));
    for (const auto& [name, member] : value.items())
      if (!validates(properties.contains(name) ? properties[name] : others, member, root)) return false;
    if (!all("required", [&](const auto& names) {
          return std::all_of(names.begin(), names.end(), [&](const auto& name) {
            return value.contains(name.template get<std::string>());
          });
        }))
      return false;
  }
  return true;
}

inline bool validates(const OrderedJson& schema, const OrderedJson& value) {
  return validates(schema, value, schema);
}

// Draws schemas that use every keyword, with short strings and arrays so that random output ends, and
// instances with properties in the grammar's order.
class RandomSchemas {
 public:
  explicit RandomSchemas(uint32_t seed) : random_(seed) {}

  int64_t below(int64_t count) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(count)); }

  OrderedJson schema(int depth = 3) {
    switch (below(depth > 0 ? 14 : 9)) {
      case 0:
        return {{"type", "boolean"}};
      case 1:
        return {{"type", "null"}, {"description", "nothing"}};
      case 2:
        return {{"type", "integer"}, {"minimum", -below(300)}, {"maximum", below(30000)}};
      case 3:
        return {{"type", "number"},
                {"exclusiveMinimum", -0.25 * static_cast<double>(1 + below(50))},
                {"maximum", 7.5 + static_cast<double>(below(100))}};
      case 4:
        return {{"enum",
                 {"red",
                  2,
                  "a \"quote\" \\ \n é 😀",
                  -2.5,
                  nullptr,
                  true,
                  {{"k", {1, "x"}}},
                  OrderedJson::array()}}};
      case 5: {
        const int64_t least = below(4);
        return {{"type", "string"}, {"minLength", least}, {"maxLength", least + below(6)}};
      }
      case 6: {
        const std::vector<std::string> patterns = {"^[a-z]{2,4}-\\d+$", "^(on|off)$", "^[^x]*$", "b+c?$",
                                                   "^[A-F0-9]{2}(:[A-F0-9]{2})*$"};
        return {{"type", "string"}, {"pattern", patterns[static_cast<size_t>(below(5))]}, {"maxLength", 12}};
      }
      case 7:
        return {{"type", {"integer", "null"}},
                {"multipleOf", 1 + below(20)},
                {"minimum", below(1000)},
                {"maximum", 1000 + below(1000)}};
      case 8:
        return {{"const", below(2) ? OrderedJson("fixed") : OrderedJson({{"a", 1}, {"b", {true}}})}};
      case 9: {
        OrderedJson array = {{"type", "array"}, {"items", schema(depth - 1)}, {"maxItems", 1 + below(4)}};
        if (below(2)) array["minItems"] = 1;
        return array;
      }
      case 10:
        return {{"type", "array"},
                {"prefixItems", {schema(depth - 1), schema(depth - 1)}},
                {"items", below(2) ? schema(0) : OrderedJson(false)},
                {"minItems", below(2)},
                {"maxItems", 3}};
      case 11:
        return {{below(2) ? "anyOf" : "oneOf", {schema(depth - 1), schema(depth - 1), schema(0)}}};
      default:
        return object(depth);
    }
  }

  OrderedJson object(int depth) {
    OrderedJson object                   = {{"type", "object"},
                                            {"properties", OrderedJson::object()},
                                            {"required", OrderedJson::array()},
                                            {"additionalProperties", false}};
    const std::vector<std::string> names = {"name", "na", "n", "value \"q\"", "é", "tags", ""};
    for (const std::string& name : names) {
      if (below(2)) continue;
      object["properties"][name] = schema(depth - 1);
      if (below(2)) object["required"].push_back(name);
    }
    return object;
  }

  // An instance of a schema of schema() or object(). Strings with a pattern and numbers come from small sets.
  OrderedJson instance(const OrderedJson& schema) {
    for (const char* any : {"anyOf", "oneOf"})
      if (schema.contains(any)) return instance(schema[any][static_cast<size_t>(below(3))]);
    if (schema.contains("enum"))
      return schema["enum"][static_cast<size_t>(below(static_cast<int64_t>(schema["enum"].size())))];
    if (schema.contains("const")) return schema["const"];
    if (schema.contains("multipleOf")) {
      if (below(4) == 0) return nullptr;
      const auto of = schema["multipleOf"].get<int64_t>(), min = schema["minimum"].get<int64_t>();
      const int64_t first = (min + of - 1) / of * of;
      return first <= schema["maximum"].get<int64_t>() ? OrderedJson(first) : OrderedJson(nullptr);
    }
    const auto type = schema["type"].get<std::string>();
    if (type == "boolean") return below(2) == 1;
    if (type == "null") return nullptr;
    if (type == "integer") {
      const auto min = schema["minimum"].get<int64_t>(), max = schema["maximum"].get<int64_t>();
      return min + below(max - min + 1);
    }
    if (type == "number") {
      const auto max = schema["maximum"].get<double>();
      return std::vector<double>{0.001, max, -0.0, 0.125, max - 0.3, 7.25}[static_cast<size_t>(below(6))];
    }
    if (type == "string" && schema.contains("pattern")) {
      static const std::map<std::string, std::vector<std::string>> matches = {
          {"^[a-z]{2,4}-\\d+$", {"ab-1", "wxyz-1234567"}},
          {"^(on|off)$", {"on", "off"}},
          {"^[^x]*$", {"", "\"\\\n", "abc"}},
          {"b+c?$", {"b", "aaabbbc", "xb"}},
          {"^[A-F0-9]{2}(:[A-F0-9]{2})*$", {"A0", "00:FF:1B"}}};
      const auto& of = matches.at(schema["pattern"].get<std::string>());
      return of[static_cast<size_t>(below(static_cast<int64_t>(of.size())))];
    }
    if (type == "string") {
      const std::vector<std::string> characters = {
          "a", " ", "\"", "\\", "\n", "é", "漢", "😀", "/", "\x7f", std::string(1, '\x01'), "{"};
      const auto least = schema["minLength"].get<int64_t>();
      std::string text;
      for (int64_t i = least + below(schema["maxLength"].get<int64_t>() - least + 1); i > 0; --i)
        text += characters[static_cast<size_t>(below(static_cast<int64_t>(characters.size())))];
      return text;
    }
    if (type == "array") {
      OrderedJson array = OrderedJson::array();
      const auto least  = schema.value("minItems", int64_t{0});
      const auto prefix = schema.value("prefixItems", OrderedJson::array());
      const bool closed = schema["items"] == OrderedJson(false);
      const auto most   = closed ? static_cast<int64_t>(prefix.size()) : schema["maxItems"].get<int64_t>();
      for (int64_t i = 0, count = least + below(most - least + 1); i < count; ++i)
        array.push_back(instance(i < static_cast<int64_t>(prefix.size()) ? prefix[static_cast<size_t>(i)]
                                                                         : schema["items"]));
      return array;
    }
    OrderedJson object = OrderedJson::object();
    for (const auto& [name, member] : schema["properties"].items()) {
      const auto& required = schema["required"];
      if (std::count(required.begin(), required.end(), name) > 0 || below(2)) object[name] = instance(member);
    }
    return object;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace fathom::grammar
