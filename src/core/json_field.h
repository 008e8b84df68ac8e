// A value inside a parsed JSON file together with its place, so that every complaint names the place:
// "experiments[2].points[0].at: expected a number, found text".
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace fathom {

// Thrown by JsonField; read_json() makes an Error of it.
struct BrokenJson {
  std::string message;
};

class JsonField {
 public:
  using json = nlohmann::json;

  JsonField(const json& value, std::string place) : value_(value), place_(std::move(place)) {}

  const json& value() const { return value_; }
  const std::string& place() const { return place_; }
  bool absent() const { return value_.is_null(); }  // or null
  [[noreturn]] void broken(std::string_view expected) const {
    throw BrokenJson{fmt::format("{}: expected {}, found {}", place_.empty() ? "the file" : place_, expected,
                                 value_.type_name())};
  }

  const JsonField& object() const {
    if (!value_.is_object()) broken("an object");
    return *this;
  }
  JsonField operator[](const std::string& name) const {
    static const json null;
    const auto found = object().value_.find(name);
    return {found == value_.end() ? null : *found, place_.empty() ? name : place_ + "." + name};
  }
  // visit(name, field) for every member of an object, visit(field) for every item of a list; none if absent.
  template <class F>
  void each_member(F&& visit) const {
    if (absent()) return;
    for (auto item = object().value_.begin(); item != value_.end(); ++item)
      visit(item.key(), (*this)[item.key()]);
  }
  template <class F>
  void each(F&& visit) const {
    if (absent()) return;
    if (!value_.is_array()) broken("a list");
    for (size_t i = 0; i < value_.size(); ++i) visit(JsonField(value_[i], fmt::format("{}[{}]", place_, i)));
  }

  std::string text() const {
    if (!value_.is_string()) broken("text");
    return value_.get<std::string>();
  }
  std::string text_or(std::string_view fallback) const { return absent() ? std::string(fallback) : text(); }
  double number() const {
    if (!value_.is_number()) broken("a number");
    return value_.get<double>();
  }
  double number_or(double fallback) const { return absent() ? fallback : number(); }
  int64_t integer_or(int64_t fallback) const {
    if (absent()) return fallback;
    if (value_.is_number_integer()) return value_.get<int64_t>();
    const double real = number();  // 6.7e7 is an integer too
    if (std::abs(real) > 9e15 || real != std::floor(real)) broken("an integer");
    return static_cast<int64_t>(real);
  }
  bool boolean_or(bool fallback) const {
    if (absent()) return fallback;
    if (!value_.is_boolean()) broken("true or false");
    return value_.get<bool>();
  }
  std::optional<std::string> maybe_text() const { return absent() ? std::nullopt : std::optional(text()); }
  std::optional<double> maybe_number() const { return absent() ? std::nullopt : std::optional(number()); }
  std::vector<std::string> texts() const {
    std::vector<std::string> list;
    each([&](const JsonField& item) { list.push_back(item.text()); });
    return list;
  }
  // NaN stands for null.
  std::vector<double> numbers() const {
    std::vector<double> list;
    each([&](const JsonField& item) {
      list.push_back(item.number_or(std::numeric_limits<double>::quiet_NaN()));
    });
    return list;
  }

 private:
  const json& value_;
  std::string place_;
};

template <class T>
Result<T> read_json(const nlohmann::json& value, T (*read)(const JsonField&)) {
  try {
    return read(JsonField(value, ""));
  } catch (const BrokenJson& broken) {
    return Error{broken.message};
  }
}

}  // namespace fathom
