#include "lab/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace fathom::lab {
namespace {

using nlohmann::json;

std::string scalar(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

bool only_scalars(const json& value) {
  return std::none_of(value.begin(), value.end(), [](const json& item) { return item.is_structured(); });
}

std::string on_one_line(const json& value) {
  if (!value.is_structured()) return scalar(value);
  std::string text = value.is_object() ? "{" : "[";
  for (auto item = value.begin(); item != value.end(); ++item) {
    if (item != value.begin()) text += ", ";
    if (value.is_object()) text += scalar(item.key()) + ": ";
    text += on_one_line(*item);
  }
  return text + (value.is_object() ? "}" : "]");
}

// Raw samples make subtrees of a megabyte: ask whether they fit a line without printing them.
bool fits(const json& value, size_t& room) {
  if (!value.is_structured()) {
    const size_t length = scalar(value).size();
    if (length > room) return false;
    room -= length;
    return true;
  }
  for (auto item = value.begin(); item != value.end(); ++item) {
    const size_t extra = 2 + (value.is_object() ? item.key().size() + 4 : 0);
    if (extra > room) return false;
    room -= extra;
    if (!fits(*item, room)) return false;
  }
  return true;
}

void print(const json& value, size_t indent, size_t line, std::string& out) {
  size_t room = line > indent ? line - indent : 0;
  if (!value.is_structured() || (value.is_array() && only_scalars(value)) || fits(value, room)) {
    out += on_one_line(value);
    return;
  }
  out += value.is_object() ? "{" : "[";
  for (auto item = value.begin(); item != value.end(); ++item) {
    out += item == value.begin() ? "\n" : ",\n";
    out.append(indent + 1, ' ');
    if (value.is_object()) out += scalar(item.key()) + ": ";
    print(*item, indent + 1, line, out);
  }
  out += "\n";
  out.append(indent, ' ');
  out += value.is_object() ? "}" : "]";
}

}  // namespace

std::string record_text(const nlohmann::json& json) { return json_text(without_absent(json), 1000); }

nlohmann::json without_absent(const nlohmann::json& json) {
  if (!json.is_structured()) return json;
  nlohmann::json out = json.is_object() ? nlohmann::json::object() : nlohmann::json::array();
  for (auto item = json.begin(); item != json.end(); ++item) {
    nlohmann::json value = without_absent(*item);
    if (json.is_array())
      out.push_back(std::move(value));
    else if (!value.empty() && value != "")  // null is empty, too
      out[item.key()] = std::move(value);
  }
  return out;
}

std::string json_text(const nlohmann::json& json, size_t line) {
  std::string out;
  print(json, 0, line, out);
  return out + "\n";
}

}  // namespace fathom::lab
