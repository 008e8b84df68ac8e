// JSON numbers within bounds, as automata over their digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "engine/byte_dfa.h"

namespace fathom::engine {

struct NumberBound {
  std::string decimal;     // of plain_decimal()
  bool exclusive = false;  // the bound itself is out
};

struct NumberRange {
  std::optional<NumberBound> min = {}, max = {};
  bool integer        = false;  // no fraction
  int64_t multiple_of = 1;      // of integers: 1 to 1000
};

// Without bounds: up to 20 digits before and after the point and exponents within double's range. With
// bounds: no exponent and at most 15 digits, so that no two of them are the same double and what is beyond a
// bound stays so when it is read. Integers: those of int64_t but the lowest. The automaton is empty where no
// such number lies within the bounds. std::nullopt: the budget is spent.
std::optional<ByteDfa> compile_number_range(const NumberRange& range, CompileBudget& budget);

// -1, 0 or 1: the first is less, equal, greater.
int compare_decimals(std::string_view a, std::string_view b);

// A double as JSON writes it, without exponent: "1.5e3" is "1500.".
std::string plain_decimal(std::string_view number);

}  // namespace fathom::engine
