// Typed parameters: `n=4096`, `compression=lz4`, `theta=0.8`; axes of them; and the command-line grammar for
// both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/result.h"

namespace fathom::lab {

using Value = std::variant<int64_t, double, std::string>;
std::string to_string(const Value& value);

// One combination of parameter values, in the order the experiment declared its axes.
class Point {
 public:
  struct Parameter {
    std::string name;
    Value value;
    bool operator==(const Parameter&) const = default;
  };

  Point() = default;
  explicit Point(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {}

  // An integer. ContractError names a parameter that is missing or of another type.
  int64_t operator[](std::string_view name) const;
  double real(std::string_view name) const;  // integers convert
  const std::string& text(std::string_view name) const;
  const Value* find(std::string_view name) const;  // null when absent

  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::string to_string() const;  // "n=4096&dtype=f32", empty for no parameters
  bool operator==(const Point&) const = default;

 private:
  std::vector<Parameter> parameters_;
};

struct Axis {
  std::string name;
  std::vector<Value> values;
};

// Every combination, the last axis fastest. No axes: one empty point.
std::vector<Point> cross_product(const std::vector<Axis>& axes);

// "n=4096", "n=[1024,4096]", "n=[2:10:2]" (inclusive), "n[pow2]=[10:14:2]", sizes as 64K or 128M (powers of
// 1024).
Result<Axis> parse_axis(std::string_view text);
Value parse_value(std::string_view text);  // integer, else number, else text

// `axes` with the values of `overrides` in place of their own. An unknown name is an error that lists what
// there is, and so is a value that the problem cannot take: of another type, below 1 (below 0 where 0 is
// known, and any number where a negative one is), or a text that is not known. Known are the values of `axes`
// and of `check_at`. Whole numbers convert where numbers are asked for.
Result<std::vector<Axis>> override_axes(std::vector<Axis> axes, const std::vector<Axis>& overrides,
                                        const std::vector<Axis>& check_at = {});

}  // namespace fathom::lab
