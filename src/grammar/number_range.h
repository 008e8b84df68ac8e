// JSON numbers within bounds, compiled to DFAs over their digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "grammar/byte_dfa.h"

namespace fathom::grammar {

struct NumberBound {
  std::string decimal;  // as plain_decimal() returns it
  bool exclusive = false;
};

struct NumberRange {
  std::optional<NumberBound> min = {}, max = {};
  bool integer        = false;  // no fraction
  int64_t multiple_of = 1;      // integers only; 1 to 1000
};

// Without bounds: up to 20 digits before and after the point, and exponents within double's range. With
// bounds: no exponent and at most 15 digits, so that distinct numbers are distinct doubles and a number out
// of bounds stays so when parsed. Integers: int64_t except its lowest value. The automaton is empty where no
// such number lies within the bounds. std::nullopt when the budget is spent.
std::optional<ByteDfa> compile_number_range(const NumberRange& range, CompileBudget& budget);

// -1, 0 or 1: the first is less, equal, greater.
int compare_decimals(std::string_view a, std::string_view b);

// Rewrites a JSON number without exponent: "1.5e3" becomes "1500.".
std::string plain_decimal(std::string_view number);

}  // namespace fathom::grammar
