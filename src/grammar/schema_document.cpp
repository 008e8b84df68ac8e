#include "grammar/schema_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "core/strict_json.h"

namespace fathom::grammar {
namespace {

constexpr size_t kMaxText     = 256 * 1024;
constexpr size_t kMaxKeys     = 5000;  // per object, because looking a key up takes linear time
constexpr size_t kMaxJsonNest = 64;

const std::map<std::string_view, KeywordScope> kKeywords = {
    {"title", KeywordScope::annotation},
    {"description", KeywordScope::annotation},
    {"default", KeywordScope::annotation},
    {"example", KeywordScope::annotation},
    {"examples", KeywordScope::annotation},
    {"$schema", KeywordScope::annotation},
    {"$id", KeywordScope::annotation},
    {"$comment", KeywordScope::annotation},
    {"$anchor", KeywordScope::annotation},
    {"$defs", KeywordScope::annotation},
    {"definitions", KeywordScope::annotation},
    {"deprecated", KeywordScope::annotation},
    {"readOnly", KeywordScope::annotation},
    {"writeOnly", KeywordScope::annotation},
    {"contentMediaType", KeywordScope::annotation},
    {"contentEncoding", KeywordScope::annotation},
    {"discriminator", KeywordScope::annotation},
    {"externalDocs", KeywordScope::annotation},
    {"type", KeywordScope::all},
    {"enum", KeywordScope::all},
    {"const", KeywordScope::all},
    {"nullable", KeywordScope::all},
    {"$ref", KeywordScope::combination},
    {"allOf", KeywordScope::combination},
    {"anyOf", KeywordScope::combination},
    {"oneOf", KeywordScope::combination},
    {"minimum", KeywordScope::number},
    {"maximum", KeywordScope::number},
    {"exclusiveMinimum", KeywordScope::number},
    {"exclusiveMaximum", KeywordScope::number},
    {"multipleOf", KeywordScope::number},
    {"minLength", KeywordScope::string},
    {"maxLength", KeywordScope::string},
    {"pattern", KeywordScope::string},
    {"format", KeywordScope::string},
    {"items", KeywordScope::array},
    {"prefixItems", KeywordScope::array},
    {"minItems", KeywordScope::array},
    {"maxItems", KeywordScope::array},
    {"uniqueItems", KeywordScope::array},
    {"properties", KeywordScope::object},
    {"required", KeywordScope::object},
    {"additionalProperties", KeywordScope::object},
    {"minProperties", KeywordScope::object},
    {"maxProperties", KeywordScope::object},
};

// A name chosen by the client, for a message: without control characters, shortened where it is long.
std::string shown(std::string_view name) {
  const std::string quoted = in_quotes(name);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

SchemaJson parse_schema(std::string_view text) {
  if (text.size() > kMaxText)
    throw SchemaRefused{fmt::format("the schema has more than {} KiB", kMaxText / 1024)};
  std::vector<std::set<std::string>> keys;  // of every open object; empty for an open array
  const auto on_event = [&](int, SchemaJson::parse_event_t event, SchemaJson& parsed) {
    switch (event) {
      case SchemaJson::parse_event_t::object_start:
      case SchemaJson::parse_event_t::array_start:
        if (keys.size() == kMaxJsonNest)
          throw SchemaRefused{fmt::format("the schema is nested deeper than {}", kMaxJsonNest)};
        keys.emplace_back();
        break;
      case SchemaJson::parse_event_t::object_end:
      case SchemaJson::parse_event_t::array_end:
        keys.pop_back();
        break;
      case SchemaJson::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(key).second)
          throw SchemaRefused{fmt::format("the schema has {} twice in one object", in_quotes(key))};
        if (keys.back().size() > kMaxKeys)
          throw SchemaRefused{fmt::format("the schema has an object with more than {} keys", kMaxKeys)};
        break;
      }
      case SchemaJson::parse_event_t::value:
        break;
    }
    return true;
  };
  try {
    return SchemaJson::parse(text.begin(), text.end(), on_event);
  } catch (const SchemaJson::parse_error& e) {
    throw SchemaRefused{fmt::format("the schema is no valid JSON at byte {}", e.byte)};
  } catch (const SchemaJson::exception&) {
    throw SchemaRefused{"the schema is no valid JSON: a number in it is out of range"};
  }
}

const SchemaJson* SchemaPart::find(const char* keyword) const {
  const auto found = schema->find(keyword);
  return found == schema->end() ? nullptr : &*found;
}

SchemaPart SchemaPart::child(std::string_view keyword, const SchemaJson& schema) const {
  return {&schema, document, place + "/" + shown(keyword)};
}

void SchemaPart::refuse(std::string_view keyword, const std::string& why) const {
  throw SchemaRefused{fmt::format("the schema's {}/{} {}", place, shown(keyword), why)};
}

SchemaPart SchemaPart::resolve(const SchemaJson& reference) const {
  if (!reference.is_string()) refuse("$ref", "must be a string");
  const auto& text = reference.get_ref<const std::string&>();
  if (!text.starts_with('#'))
    refuse("$ref", fmt::format("is {}: only references within the schema, like '#/$defs/name', are followed",
                               in_quotes(text)));
  std::string pointer;
  for (size_t i = 1; i < text.size(); ++i) {  // a URI fragment is percent-encoded
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
    const SchemaJson::json_pointer at(pointer);
    if (document->contains(at)) return {&document->at(at), document, shown("#" + pointer)};
  } catch (const SchemaJson::exception&) {
  }
  refuse("$ref", fmt::format("is {}, which leads nowhere", in_quotes(text)));
}

std::optional<KeywordScope> scope_of(std::string_view keyword) {
  const auto found = kKeywords.find(keyword);
  if (found != kKeywords.end()) return found->second;
  return keyword.starts_with("x-") ? std::optional(KeywordScope::annotation) : std::nullopt;
}

}  // namespace fathom::grammar
