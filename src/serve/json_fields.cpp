#include "serve/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/strict_json.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxDepth  = 64;
constexpr size_t kMaxValues = 1 << 20;

// Keeps the last member of each name.
void drop_repeated(Json::object_t& object) {
  std::vector<std::pair<std::string_view, size_t>> names;
  for (size_t i = 0; i < object.size(); ++i) names.emplace_back((object.begin() + i)->first, i);
  std::sort(names.begin(), names.end());
  std::vector<bool> dropped(object.size());
  bool any = false;
  for (size_t i = 1; i < names.size(); ++i)
    if (names[i - 1].first == names[i].first) any = dropped[names[i - 1].second] = true;
  if (!any) return;
  Json::object_t kept;
  for (size_t i = 0; i < object.size(); ++i)
    if (!dropped[i])
      kept.Json::object_t::Container::emplace_back((object.begin() + i)->first,
                                                   std::move((object.begin() + i)->second));
  object = std::move(kept);
}

// Builds the document by appending. The library's own builder compares each new key with all earlier keys of
// the object: a million keys would take an hour.
class Builder : public nlohmann::json_sax<Json> {
 public:
  std::unique_ptr<Json> root;
  std::string error;  // "": no error

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON has no binary values
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    drop_repeated(open_.back()->get_ref<Json::object_t&>());
    return end_array();
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    constexpr int kNumberOverflow = 406;
    if (error.empty())
      error = e.id == kNumberOverflow ? fmt::format("has a number beyond all range at byte {}", position)
                                      : fmt::format("is no valid JSON at byte {}", position);
    return false;
  }

 private:
  bool add(Json value) {
    if (++values_ > kMaxValues) {
      error = fmt::format("has more than {} values", kMaxValues);
      return false;
    }
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == kMaxDepth) {
      error = fmt::format("is nested deeper than {}", kMaxDepth);
      return false;
    }
    if (++values_ > kMaxValues) return add(nullptr);
    open_.push_back(place(std::move(value)));
    return true;
  }
  // Pointers to open values stay valid: only the innermost open value grows.
  Json* place(Json value) {
    if (open_.empty()) {
      root = std::make_unique<Json>(std::move(value));
      return root.get();
    }
    if (open_.back()->is_array())
      return &open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
    auto& members = static_cast<Json::object_t::Container&>(open_.back()->get_ref<Json::object_t&>());
    return &members.emplace_back(std::move(key_), std::move(value)).second;
  }

  std::vector<Json*> open_;
  std::string key_;
  size_t values_ = 0;
};

std::string_view kind_of(const Json& json) {
  if (json.is_string()) return "a string";
  if (json.is_object()) return "an object";
  if (json.is_array()) return "a list";
  if (json.is_boolean()) return "true or false";
  return json.is_number() ? "a number" : "null";
}

}  // namespace

JsonBody::JsonBody(std::string_view text) {
  Builder builder;
  const bool whole = Json::sax_parse(text.begin(), text.end(), &builder);
  if (whole && builder.root && builder.root->is_object()) {
    json_ = std::move(builder.root);
    return;
  }
  if (builder.error.empty()) builder.error = fmt::format("is {}", kind_of(*builder.root));
  error_ = bad_request("", fmt::format("the body {}, but must be one JSON object in UTF-8",
                                       text.empty() ? "is empty" : builder.error));
}

JsonBody::~JsonBody() = default;

void Field::fail(std::string_view what) const {
  if (*error_) return;
  *error_ = bad_request(path_, fmt::format("{} {}", path_.empty() ? "the body" : path_, what));
}

void Field::must_be(std::string_view what) const {
  fail(fmt::format("must be {}, not {}", what, kind_of(*json_)));
}

template <class Range>
void Field::must_be_between(Range lowest, Range highest) const {
  fail(fmt::format("is {}, but must be between {} and {}", json_->dump(), lowest, highest));
}

Field Field::operator[](std::string_view name) const {
  Field member{nullptr, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name), error_};
  if (!json_) return member;
  if (!json_->is_object()) {
    must_be("an object");
    return member;
  }
  const auto& members = json_->get_ref<const Json::object_t&>();
  const auto found    = std::find_if(members.begin(), members.end(),
                                     [&](const auto& candidate) { return candidate.first == name; });
  if (found != members.end() && !found->second.is_null()) member.json_ = &found->second;
  return member;
}

int64_t Field::size(int64_t most) const {
  if (!json_) return 0;
  if (!json_->is_array()) {
    must_be("a list");
    return 0;
  }
  const auto count = static_cast<int64_t>(json_->size());
  if (count <= most) return count;
  fail(fmt::format("has {} elements, but at most {} are allowed", count, most));
  return 0;
}

Field Field::at(int64_t index) const {
  const Json& element = (*json_)[static_cast<size_t>(index)];
  return {element.is_null() ? nullptr : &element, fmt::format("{}[{}]", path_, index), error_};
}

std::vector<std::pair<std::string, Field>> Field::members(int64_t most) const {
  std::vector<std::pair<std::string, Field>> found;
  if (!json_) return found;
  if (!json_->is_object()) {
    must_be("an object");
    return found;
  }
  if (static_cast<int64_t>(json_->size()) > most) {
    fail(fmt::format("has {} members, but at most {} are allowed", json_->size(), most));
    return found;
  }
  for (const auto& [name, value] : json_->items())
    if (!value.is_null())
      found.emplace_back(name, Field{&value, fmt::format("{}[{}]", path_, in_quotes(name)), error_});
  return found;
}

std::optional<bool> Field::boolean() const {
  if (!json_) return {};
  if (json_->is_boolean()) return json_->get<bool>();
  must_be("true or false");
  return {};
}

std::optional<int64_t> Field::integer(int64_t lowest, int64_t highest) const {
  if (!json_) return {};
  if (!json_->is_number()) {
    must_be("an integer");
    return {};
  }
  const double rounded = json_->get<double>();
  if (json_->is_number_float() && rounded != std::floor(rounded)) {
    fail(fmt::format("is {}, but must be an integer", json_->dump()));
    return {};
  }
  // Of floats, accepts magnitudes below 2^63: a float of -2^63 may have been rounded from a smaller number.
  const bool fits     = json_->is_number_unsigned()
                            ? json_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                            : !json_->is_number_float() || (rounded > -0x1p63 && rounded < 0x1p63);
  const int64_t value = fits ? json_->get<int64_t>() : 0;
  if (fits && value >= lowest && value <= highest) return value;
  must_be_between(lowest, highest);
  return {};
}

std::optional<double> Field::number(double lowest, double highest) const {
  if (!json_) return {};
  if (!json_->is_number()) {
    must_be("a number");
    return {};
  }
  const double value = json_->get<double>();
  if (value >= lowest && value <= highest) return value;
  must_be_between(lowest, highest);
  return {};
}

std::optional<std::string> Field::text() const {
  if (!json_) return {};
  if (json_->is_string()) return json_->get<std::string>();
  must_be("a string");
  return {};
}

std::optional<std::string> Field::text(int64_t most_bytes) const {
  auto value = text();
  if (!value || (!value->empty() && static_cast<int64_t>(value->size()) <= most_bytes)) return value;
  fail(fmt::format("has {} bytes, but must have 1 to {}", value->size(), most_bytes));
  return {};
}

std::optional<std::string> Field::one_of(std::initializer_list<std::string_view> words) const {
  auto value = text();
  if (!value || std::find(words.begin(), words.end(), *value) != words.end()) return value;
  fail(fmt::format("is {}, but must be one of {}", in_quotes(*value), fmt::join(words, ", ")));
  return {};
}

std::optional<std::string> Field::object_text() const {
  if (!json_) return {};
  if (json_->is_object()) return json_->dump();
  must_be("an object");
  return {};
}

std::vector<model::TokenId> Field::token_ids(int64_t most, int64_t vocab_size) const {
  std::vector<model::TokenId> ids;
  const int64_t count = size(most);
  ids.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const Json& id = (*json_)[static_cast<size_t>(i)];
    if (id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocab_size)) {
      ids.push_back(static_cast<model::TokenId>(id.get<uint64_t>()));
      continue;
    }
    const auto value = Field{&id, fmt::format("{}[{}]", path_, i), error_}.integer(0, vocab_size - 1);
    if (!value) return {};
    ids.push_back(static_cast<model::TokenId>(*value));
  }
  return ids;
}

bool Field::is_text() const { return json_ && json_->is_string(); }
bool Field::is_object() const { return json_ && json_->is_object(); }
bool Field::is_array() const { return json_ && json_->is_array(); }
bool Field::is_number() const { return json_ && json_->is_number(); }

bool Field::is_empty() const {
  return json_ && (*json_ == false || *json_ == "" || (json_->is_structured() && json_->empty()));
}

}  // namespace fathom::serve
