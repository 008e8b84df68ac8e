// Reads a client's JSON. Each value is requested with its type and range, and an error names its place. The
// first error stays with the body and does not stop the reading; the caller checks it once, at the end.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tokenizer.h"
#include "serve/api_error.h"

namespace fathom::serve {

// A value of a body, or an absent one. Null counts as absent. Reading an absent value, or one of the wrong
// type or range, returns nothing.
class Field {
 public:
  explicit operator bool() const { return json_ != nullptr; }

  // A member. An error where this is not an object.
  Field operator[](std::string_view name) const;
  // The number of elements, at most `most`. An error where this is not an array.
  int64_t size(int64_t most) const;
  Field at(int64_t index) const;  // null elements are absent
  // An object's members in the order they were sent, without those that are null.
  std::vector<std::pair<std::string, Field>> members(int64_t most) const;

  std::optional<bool> boolean() const;
  std::optional<int64_t> integer(int64_t lowest, int64_t highest) const;  // 5.0 is an integer
  std::optional<double> number(double lowest, double highest) const;
  std::optional<std::string> text() const;
  std::optional<std::string> text(int64_t most_bytes) const;  // not empty
  std::optional<std::string> one_of(std::initializer_list<std::string_view> words) const;
  std::optional<std::string> object_text() const;  // an object's JSON text
  std::vector<model::TokenId> token_ids(int64_t most, int64_t vocab_size) const;

  bool is_text() const;
  bool is_object() const;
  bool is_array() const;
  bool is_number() const;
  bool is_empty() const;  // false, "", [] or {}

  const std::string& path() const { return path_; }
  bool failed() const { return error_->has_value(); }  // the body has an error, so further reading is useless
  // Sets the error "`path` `what`", as in "`n` must be a number, not a string", on absent values too.
  void fail(std::string_view what) const;

 private:
  friend class JsonBody;
  Field(const nlohmann::ordered_json* json, std::string path, std::optional<ApiError>* error)
      : json_(json), path_(std::move(path)), error_(error) {}

  void must_be(std::string_view what) const;
  template <class Range>
  void must_be_between(Range lowest, Range highest) const;

  const nlohmann::ordered_json* json_;  // null: absent
  std::string path_;                    // "messages[2].content"; "" for the body
  std::optional<ApiError>* error_;
};

// A parsed body. It must be one JSON object in UTF-8, nested at most 64 deep, with at most a million values.
// Of equal keys the last one counts.
class JsonBody {
 public:
  explicit JsonBody(std::string_view text);
  JsonBody(const JsonBody&)            = delete;
  JsonBody& operator=(const JsonBody&) = delete;
  ~JsonBody();

  Field root() { return {json_.get(), "", &error_}; }  // absent where the text is not such an object
  const std::optional<ApiError>& error() const { return error_; }

 private:
  std::unique_ptr<const nlohmann::ordered_json> json_;
  std::optional<ApiError> error_;
};

// The result of `read`, unless the body has an error.
template <class Read>
auto read_body(std::string_view text, Read read) -> ApiResult<decltype(read(std::declval<Field>()))> {
  JsonBody body(text);
  auto value = read(body.root());
  if (body.error()) return *body.error();
  return value;
}

}  // namespace fathom::serve
