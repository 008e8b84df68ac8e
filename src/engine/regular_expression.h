// Regular expressions as trees: the subset of ECMA 262 that describes a regular language.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace fathom::engine {

struct CodePoints {
  uint32_t first, last;
};

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

struct Expression {
  enum class Kind { characters, sequence, alternatives, repeat };
  Kind kind = Kind::sequence;
  std::vector<CodePoints> characters;  // one of these; disjoint and sorted
  std::vector<Expression> parts;       // of a repeat: one
  int64_t min                = 0;      // of a repeat
  std::optional<int64_t> max = {};
};

// `pattern` is well-formed UTF-8. What is accepted: compile_string_pattern() says it. Where ^ or $ is missing
// the tree begins or ends with any characters. An error names the byte and what stands there.
Result<Expression> parse_expression(std::string_view pattern);

}  // namespace fathom::engine
