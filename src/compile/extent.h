// Extents of tensors: a constant times symbols, whose values a call gives. 6, T, 2*T*H.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fathom::compile {

// Of a symbol's values, and of a tensor's elements.
inline constexpr int64_t kMostElements = int64_t{1} << 50;

// An extent whose value is known at a call alone, within bounds that guards check.
struct Symbol {
  std::string name;
  int64_t min = 0, max = int64_t{1} << 40, multiple = 1;

  bool admits(int64_t value) const { return value >= min && value <= max && value % multiple == 0; }
  // A value for estimates of bytes: near 1024.
  int64_t typical() const;

  bool operator==(const Symbol&) const = default;
};

// Symbols are positions in the table of a Graph.
class Extent {
 public:
  Extent(int64_t constant = 1) : coefficient_(constant) {}
  static Extent of_symbol(int symbol);

  bool is_constant() const { return symbols_.empty(); }
  // Whether it is the constant.
  bool is(int64_t constant) const { return is_constant() && coefficient_ == constant; }
  int64_t coefficient() const { return coefficient_; }
  const std::vector<int>& symbols() const { return symbols_; }  // ascending, one entry a factor

  int64_t value(std::span<const int64_t> of_symbols) const;
  Extent with(int symbol, int64_t value) const;  // the symbol is a constant from now on
  std::string text(std::span<const Symbol> symbols) const;

  bool operator==(const Extent&) const = default;
  // Saturates, far beyond kMostElements.
  friend Extent operator*(const Extent& a, const Extent& b);

 private:
  int64_t coefficient_;
  std::vector<int> symbols_;  // empty where the coefficient is 0
};

using Shape = std::vector<Extent>;

Extent product(const Shape& shape);
std::vector<int64_t> values(const Shape& shape, std::span<const int64_t> of_symbols);
std::string text(const Shape& shape, std::span<const Symbol> symbols);  // "[T, 256]"
// The product of concrete extents.
int64_t count(std::span<const int64_t> extents);

}  // namespace fathom::compile
