// Result<T>: a value, or an error that the caller may expect. Names as in std::expected, which C++20 lacks.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace fathom {

// One sentence for the user: what was wrong, where, and what to do.
struct Error {
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  // Precondition: has_value(); otherwise std::get throws std::bad_variant_access.
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Precondition: !has_value().
  const Error& error() const { return std::get<1>(state_); }

  T value_or(T fallback) const { return has_value() ? value() : std::move(fallback); }

 private:
  std::variant<T, Error> state_;
};

struct Ok {};
using Status = Result<Ok>;

}  // namespace fathom
