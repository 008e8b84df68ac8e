#include "lab/point.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "core/expect.h"

namespace fathom::lab {
namespace {

const char* type_name(const Value& value) {
  constexpr const char* kNames[] = {"an integer", "a number", "text"};
  return kNames[value.index()];
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t scale = 1;
  if (!text.empty()) {
    const char unit = text.back();
    if (unit == 'K' || unit == 'M' || unit == 'G') {
      scale = unit == 'K' ? 1 << 10 : unit == 'M' ? 1 << 20 : 1 << 30;
      text.remove_suffix(1);
    }
  }
  int64_t number        = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (bad != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  if (number > INT64_MAX / scale || number < INT64_MIN / scale) return std::nullopt;
  return number * scale;
}

double as_number(const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  return std::get<double>(value);
}

// The least number that an axis with these values takes: they are sizes and counts, unless one is negative.
double least_allowed(const std::vector<Value>& known) {
  const bool whole = std::holds_alternative<int64_t>(known.front());
  double least     = whole ? 1 : 0;
  for (const Value& value : known) {
    if (as_number(value) < 0) return -std::numeric_limits<double>::infinity();
    least = std::min(least, as_number(value));
  }
  return least;
}

bool takes(const Value& value, const std::vector<Value>& known) {
  if (value.index() != known.front().index()) return false;
  if (std::holds_alternative<std::string>(value))
    return std::find(known.begin(), known.end(), value) != known.end();
  return as_number(value) >= least_allowed(known);
}

// "a whole number of at least 1", "zstd or lz4".
std::string allowed_text(const std::vector<Value>& known) {
  if (std::holds_alternative<std::string>(known.front())) {
    std::vector<std::string> texts;
    for (const Value& value : known)
      if (const auto& text = std::get<std::string>(value);
          std::find(texts.begin(), texts.end(), text) == texts.end())
        texts.push_back(text);
    return fmt::format("{}", fmt::join(texts, " or "));
  }
  const double least = least_allowed(known);
  const char* type   = std::holds_alternative<int64_t>(known.front()) ? "a whole number" : "a number";
  return std::isfinite(least) ? fmt::format("{} of at least {}", type, least) : type;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

}  // namespace

std::string to_string(const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  return std::get<std::string>(value);
}

const Value* Point::find(std::string_view name) const {
  for (const Parameter& parameter : parameters_)
    if (parameter.name == name) return &parameter.value;
  return nullptr;
}

int64_t Point::operator[](std::string_view name) const {
  const Value* value = find(name);
  FATHOM_EXPECT(value != nullptr, fmt::format("no parameter '{}' at this point ({})", name, to_string()));
  const auto* integer = std::get_if<int64_t>(value);
  FATHOM_EXPECT(integer != nullptr,
                fmt::format("parameter '{}' is {}, not an integer", name, type_name(*value)));
  return *integer;
}

double Point::real(std::string_view name) const {
  const Value* value = find(name);
  FATHOM_EXPECT(value != nullptr, fmt::format("no parameter '{}' at this point ({})", name, to_string()));
  if (const auto* number = std::get_if<double>(value)) return *number;
  return static_cast<double>((*this)[name]);
}

const std::string& Point::text(std::string_view name) const {
  const Value* value = find(name);
  FATHOM_EXPECT(value != nullptr, fmt::format("no parameter '{}' at this point ({})", name, to_string()));
  const auto* text = std::get_if<std::string>(value);
  FATHOM_EXPECT(text != nullptr, fmt::format("parameter '{}' is {}, not text", name, type_name(*value)));
  return *text;
}

std::string Point::to_string() const {
  std::string joined;
  for (const Parameter& parameter : parameters_) {
    if (!joined.empty()) joined += '&';
    joined += parameter.name + '=' + lab::to_string(parameter.value);
  }
  return joined;
}

std::vector<Point> cross_product(const std::vector<Axis>& axes) {
  std::vector<std::vector<Point::Parameter>> rows = {{}};
  for (const Axis& axis : axes) {
    std::vector<std::vector<Point::Parameter>> longer;
    for (const auto& row : rows)
      for (const Value& value : axis.values) {
        longer.push_back(row);
        longer.back().push_back({axis.name, value});
      }
    rows = std::move(longer);
  }
  std::vector<Point> points;
  for (auto& row : rows) points.emplace_back(std::move(row));
  return points;
}

Value parse_value(std::string_view text) {
  if (const auto integer = parse_integer(text)) return *integer;
  double real           = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), real);
  if (bad == std::errc{} && end == text.data() + text.size() && !text.empty() && std::isfinite(real))
    return real;
  return std::string(text);
}

Result<Axis> parse_axis(std::string_view text) {
  constexpr int64_t kMostValues = 10'000;
  const auto bad                = [&](std::string_view why) {
    return Error{fmt::format(
                       "cannot read the axis '{}': {}; write n=4096, n=[1024,4096], n=[2:10:2] or n[pow2]=[10:14:2]", text,
                       why)};
  };
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) return bad("no 'name=value'");
  std::string_view name = text.substr(0, equals), values = text.substr(equals + 1);
  const bool powers = name.ends_with("[pow2]");
  if (powers) name.remove_suffix(6);
  if (name.empty() || name.find_first_of("[] ") != std::string_view::npos)
    return bad("the name is not a name");
  if (values.empty()) return bad("there is no value");

  Axis axis{std::string(name), {}};
  const bool bracketed = values.front() == '[';
  if (bracketed) {
    if (values.back() != ']' || values.size() < 3) return bad("'[' without a list and ']'");
    values = values.substr(1, values.size() - 2);
  }
  for (const std::string_view item : split(values, ',')) {
    if (item.empty()) return bad("an empty value in the list");
    const auto parts = split(item, ':');
    if (bracketed && parts.size() > 1) {
      const auto first = parse_integer(parts[0]), last = parse_integer(parts[1]);
      const auto step = parts.size() == 3 ? parse_integer(parts[2]) : std::optional<int64_t>(1);
      if (parts.size() > 3 || !first || !last || !step || *step <= 0 || *last < *first)
        return bad("a range is first:last or first:last:step of integers, first <= last, step > 0");
      if ((*last - *first) / *step >= kMostValues) return bad("a range of more than 10,000 values");
      for (int64_t value = *first;; value += *step) {
        axis.values.emplace_back(value);
        if (*last - value < *step) break;
      }
    } else {
      axis.values.push_back(parse_value(item));
    }
  }
  if (powers)
    for (Value& value : axis.values) {
      const auto* exponent = std::get_if<int64_t>(&value);
      if (!exponent || *exponent < 0 || *exponent > 62) return bad("[pow2] takes exponents from 0 to 62");
      value = int64_t{1} << *exponent;
    }
  return axis;
}

Result<std::vector<Axis>> override_axes(std::vector<Axis> axes, const std::vector<Axis>& overrides,
                                        const std::vector<Axis>& check_at) {
  for (const Axis& wanted : overrides) {
    const auto axis =
        std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.name == wanted.name; });
    if (axis == axes.end()) {
      std::string names;
      for (const Axis& a : axes) names += (names.empty() ? "" : ", ") + a.name;
      return Error{
          fmt::format("there is no axis '{}'; it has {}", wanted.name, names.empty() ? "none" : names)};
    }
    std::vector<Value> known = axis->values;
    for (const Axis& proved : check_at)
      if (proved.name == wanted.name) known.insert(known.end(), proved.values.begin(), proved.values.end());
    axis->values = wanted.values;
    if (known.empty()) continue;
    const bool real = std::holds_alternative<double>(known.front());
    for (Value& value : axis->values) {
      if (const auto* integer = std::get_if<int64_t>(&value); integer && real)
        value = static_cast<double>(*integer);
      if (!takes(value, known))
        return Error{
            fmt::format("axis '{}' takes {}, not '{}'", wanted.name, allowed_text(known), to_string(value))};
    }
  }
  return axes;
}

}  // namespace fathom::lab
