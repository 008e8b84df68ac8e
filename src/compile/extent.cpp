#include "compile/extent.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/expect.h"

namespace fathom::compile {

int64_t Symbol::typical() const {
  const int64_t near = std::max(min, std::min<int64_t>(1024, max));
  const int64_t down = near / multiple * multiple;
  return admits(down) ? down : down + multiple;
}

Extent Extent::of_symbol(int symbol) {
  Extent extent;
  extent.symbols_ = {symbol};
  return extent;
}

int64_t Extent::value(std::span<const int64_t> of_symbols) const {
  int64_t value = coefficient_;
  for (const int symbol : symbols_) value *= of_symbols[static_cast<size_t>(symbol)];
  return value;
}

Extent Extent::with(int symbol, int64_t value) const {
  Extent result(coefficient_);
  for (const int s : symbols_) result = result * (s == symbol ? Extent(value) : of_symbol(s));
  return result;
}

std::string Extent::text(std::span<const Symbol> symbols) const {
  std::string text = coefficient_ == 1 && !symbols_.empty() ? "" : std::to_string(coefficient_);
  for (const int symbol : symbols_)
    text += (text.empty() ? "" : "*") + symbols[static_cast<size_t>(symbol)].name;
  return text;
}

Extent operator*(const Extent& a, const Extent& b) {
  Extent result;
  if (__builtin_mul_overflow(a.coefficient_, b.coefficient_, &result.coefficient_))
    result.coefficient_ = INT64_MAX;
  if (result.coefficient_ == 0) return result;
  result.symbols_.resize(a.symbols_.size() + b.symbols_.size());
  std::merge(a.symbols_.begin(), a.symbols_.end(), b.symbols_.begin(), b.symbols_.end(),
             result.symbols_.begin());
  return result;
}

Extent product(const Shape& shape) {
  Extent all(1);
  for (const Extent& extent : shape) all = all * extent;
  return all;
}

std::vector<int64_t> values(const Shape& shape, std::span<const int64_t> of_symbols) {
  std::vector<int64_t> values;
  for (const Extent& extent : shape) values.push_back(extent.value(of_symbols));
  return values;
}

std::string text(const Shape& shape, std::span<const Symbol> symbols) {
  std::vector<std::string> texts;
  for (const Extent& extent : shape) texts.push_back(extent.text(symbols));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

int64_t count(std::span<const int64_t> extents) {
  int64_t count = 1;
  for (const int64_t extent : extents) count *= extent;
  return count;
}

}  // namespace fathom::compile
