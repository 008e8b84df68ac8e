// Reading a client's JSON: every value is asked for by type and range, and what is wrong names its place. The
// first error stays with the body and ends no reading; whoever reads looks once, when all has been read.
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

// One value of a body, or an absent one. What is null is absent. All reading of an absent value, or of one
// that is not as asked for, gives nothing.
class Field {
 public:
  explicit operator bool() const { return json_ != nullptr; }

  // A member; an error where this is no object.
  Field operator[](std::string_view name) const;
  // An array's elements, at most `most`; an error where this is no array.
  int64_t size(int64_t most) const;
  Field at(int64_t index) const;  // null elements are absent
  // An object's members in the order they were sent; those that are null are left out.
  std::vector<std::pair<std::string, Field>> members(int64_t most) const;

  std::optional<bool> boolean() const;
  std::optional<int64_t> integer(int64_t lowest, int64_t highest) const;  // 5.0 is one
  std::optional<double> number(double lowest, double highest) const;
  std::optional<std::string> text() const;
  std::optional<std::string> text(int64_t most_bytes) const;  // and not empty
  std::optional<std::string> one_of(std::initializer_list<std::string_view> words) const;
  std::optional<std::string> object_text() const;  // an object, as JSON
  std::vector<model::TokenId> token_ids(int64_t most, int64_t vocab_size) const;

  bool is_text() const;
  bool is_object() const;
  bool is_array() const;
  bool is_number() const;
  bool is_empty() const;  // false, "", [] or {}

  const std::string& path() const { return path_; }
  bool failed() const { return error_->has_value(); }  // something in this body: reading on is futile
  // "`path` `what`": "must be a number, not a string". Whether this is absent or not.
  void fail(std::string_view what) const;

 private:
  friend class JsonBody;
  Field(const nlohmann::ordered_json* json, std::string path, std::optional<ApiError>* error)
      : json_(json), path_(std::move(path)), error_(error) {}

  void must_be(std::string_view what) const;
  template <class Range>
  void must_be_between(Range lowest, Range highest) const;

  const nlohmann::ordered_json* json_;  // null: absent
  std::string path_;                    // "messages[2].content"; "" of the body
  std::optional<ApiError>* error_;
};

// A body's text, parsed. It must be one JSON object in UTF-8, nested at most 64 deep and of a million values
// at most; of a key that is given twice the last holds.
class JsonBody {
 public:
  explicit JsonBody(std::string_view text);
  JsonBody(const JsonBody&)            = delete;
  JsonBody& operator=(const JsonBody&) = delete;
  ~JsonBody();

  Field root() { return {json_.get(), "", &error_}; }  // absent where the text is no such thing
  const std::optional<ApiError>& error() const { return error_; }

 private:
  std::unique_ptr<const nlohmann::ordered_json> json_;
  std::optional<ApiError> error_;
};

// What `read` makes of the body, unless something in it was wrong.
template <class Read>
auto read_body(std::string_view text, Read read) -> ApiResult<decltype(read(std::declval<Field>()))> {
  JsonBody body(text);
  auto value = read(body.root());
  if (body.error()) return *body.error();
  return value;
}

}  // namespace fathom::serve
