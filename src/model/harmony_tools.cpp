#include "model/harmony_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/expect.h"

namespace fathom::model {
namespace {

using OrderedJson = nlohmann::ordered_json;  // keeps the order of properties

const OrderedJson* member(const OrderedJson& schema, const char* key) {
  if (!schema.is_object()) return nullptr;
  const auto found = schema.find(key);
  return found == schema.end() ? nullptr : &*found;
}

// The member if it is a string, else null.
const std::string* text_of(const OrderedJson& schema, const char* key) {
  const OrderedJson* value = member(schema, key);
  return value && value->is_string() ? &value->get_ref<const std::string&>() : nullptr;
}

const OrderedJson* array_of(const OrderedJson& schema, const char* key) {
  const OrderedJson* value = member(schema, key);
  return value && value->is_array() ? value : nullptr;
}

bool is_enum(const OrderedJson& schema) {
  const OrderedJson* values = array_of(schema, "enum");
  return values && !values->empty();
}

// The `default` as a comment; "" for none. For a property, a default of an enum has no quotes.
std::string default_text(const OrderedJson& schema, bool of_property) {
  const OrderedJson* value = member(schema, "default");
  if (!value) return "";
  if (!value->is_string() || (is_enum(schema) && !of_property)) return "default: " + value->dump();
  const auto& text = value->get_ref<const std::string&>();
  return is_enum(schema) ? "default: " + text : "default: \"" + text + "\"";
}

std::string type_of(const OrderedJson& schema, const std::string& indent);

std::string nullable_type_of(const OrderedJson& schema, const std::string& indent) {
  std::string type            = type_of(schema, indent);
  const OrderedJson* nullable = member(schema, "nullable");
  if (nullable && *nullable == true && type.find("null") == std::string::npos) type += " | null";
  return type;
}

// One variant of `oneOf` with its comment.
std::string variant_text(const OrderedJson& variant, const std::string& indent,
                         const std::string* description, bool of_property) {
  std::string text         = nullable_type_of(variant, indent + "   ");
  const std::string preset = default_text(variant, of_property);
  std::string comment      = description ? *description : "";
  if (description && !preset.empty()) comment += " ";
  comment += preset;
  return description || !preset.empty() ? text + " // " + comment : text;
}

std::string union_text(const OrderedJson& variants, const std::string& indent) {
  std::string text;
  for (const OrderedJson& variant : variants)
    text += fmt::format("\n{} | {}", indent,
                        variant_text(variant, indent, text_of(variant, "description"), false));
  return text;
}

std::string property_union_text(const std::string& name, const OrderedJson& schema,
                                const OrderedJson& variants, const std::string& indent) {
  // A description that the property and a variant share is printed once.
  const std::string* description = text_of(schema, "description");
  const std::string* first       = variants.empty() ? nullptr : text_of(variants[0], "description");
  const bool above               = description && !(first && *first == *description);
  std::string text;
  if (above) text += fmt::format("{}// {}\n", indent, *description);
  const std::string preset = default_text(schema, true);
  if (!preset.empty()) text += fmt::format("{}// {}\n", indent, preset);
  text += fmt::format("{}{}:\n", indent, name);
  for (size_t i = 0; i < variants.size(); ++i) {
    const std::string* own = text_of(variants[i], "description");
    if (own && ((i == 0 && above) || (description && *own == *description))) own = nullptr;
    text += fmt::format("{} | {}\n", indent, variant_text(variants[i], indent, own, true));
  }
  return text + indent + ",\n";
}

std::string property_text(const std::string& name, const OrderedJson& schema, const std::string& indent) {
  std::string text;
  if (const auto* title = text_of(schema, "title")) text += fmt::format("{0}// {1}\n{0}//\n", indent, *title);
  const auto* description = text_of(schema, "description");
  if (description && !member(schema, "oneOf")) text += fmt::format("{}// {}\n", indent, *description);
  if (const OrderedJson* examples = array_of(schema, "examples"); examples && !examples->empty()) {
    text += indent + "// Examples:\n";
    for (const OrderedJson& example : *examples)
      if (example.is_string())
        text += fmt::format("{}// - \"{}\"\n", indent, example.get_ref<const std::string&>());
  }
  if (const OrderedJson* variants = array_of(schema, "oneOf"))
    return text + property_union_text(name, schema, *variants, indent);
  text += fmt::format("{}{}: {},", indent, name, nullable_type_of(schema, indent + "    "));
  const std::string preset = member(schema, "oneOf") ? "" : default_text(schema, true);
  return text + (preset.empty() ? "\n" : " // " + preset + "\n");
}

std::string object_text(const OrderedJson& schema, const std::string& indent) {
  std::string text;
  if (const auto* description = text_of(schema, "description"))
    text += fmt::format("{}// {}\n", indent, *description);
  text += "{\n";
  std::set<std::string> required;
  if (const OrderedJson* names = array_of(schema, "required"))
    for (const OrderedJson& name : *names)
      if (name.is_string()) required.insert(name.get<std::string>());
  if (const OrderedJson* properties = member(schema, "properties"); properties && properties->is_object())
    for (const auto& [name, property] : properties->items())
      text += property_text(required.contains(name) ? name : name + "?", property, indent);
  return text + indent + "}";
}

std::string type_of(const OrderedJson& schema, const std::string& indent) {
  if (const OrderedJson* variants = array_of(schema, "oneOf")) return union_text(*variants, indent);
  if (const OrderedJson* types = array_of(schema, "type")) {
    std::string text;
    for (const OrderedJson& type : *types)
      if (type.is_string())
        text += (text.empty() ? "" : " | ") + (type == "integer" ? "number" : type.get<std::string>());
    return text.empty() ? "any" : text;
  }
  const std::string* type = text_of(schema, "type");
  if (!type) return "any";
  if (*type == "object") return object_text(schema, indent);
  if (*type == "number" || *type == "integer") return "number";
  if (*type == "boolean") return "boolean";
  if (*type == "array") {
    const OrderedJson* items = member(schema, "items");
    return items ? type_of(*items, indent) + "[]" : "Array<any>";
  }
  if (*type != "string") return "any";
  std::string text;
  if (const OrderedJson* values = array_of(schema, "enum"))
    for (const OrderedJson& value : *values)
      if (value.is_string())
        text += (text.empty() ? "\"" : " | \"") + value.get_ref<const std::string&>() + "\"";
  return text.empty() ? "string" : text;
}

// Prefixes every line with "// ".
std::string comment(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const size_t end      = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (end < text.size() && line.ends_with('\r')) line.remove_suffix(1);
    lines += fmt::format("// {}\n", line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string function_text(const NamedSchema& function) {
  if (function.schema.empty())
    return fmt::format("{}type {} = () => any;\n\n", comment(function.description), function.name);
  const OrderedJson parameters = OrderedJson::parse(function.schema, nullptr, false);
  FATHOM_EXPECT(!parameters.is_discarded(), "a function's parameters must have been checked to be JSON");
  return fmt::format("{}type {} = (_: {}) => any;\n\n", comment(function.description), function.name,
                     type_of(parameters, ""));
}

}  // namespace

std::string harmony_developer_text(std::string_view instructions, std::span<const NamedSchema> functions,
                                   const NamedSchema* response) {
  std::vector<std::string> sections;
  if (!instructions.empty()) sections.push_back(fmt::format("# Instructions\n\n{}", instructions));
  if (!functions.empty()) {
    std::string tools = "# Tools\n\n## functions\n\nnamespace functions {\n\n";
    for (const NamedSchema& function : functions) tools += function_text(function);
    sections.push_back(tools + "} // namespace functions");
  }
  if (response)
    sections.push_back(fmt::format("# Response Formats\n\n## {}\n\n{}{}", response->name,
                                   comment(response->description), response->schema));
  return fmt::format("{}", fmt::join(sections, "\n\n"));
}

}  // namespace fathom::model
