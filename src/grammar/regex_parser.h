// Parses regular expressions into trees: the subset of ECMA 262 that describes a regular language.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace fathom::grammar {

struct CodePoints {
  uint32_t first, last;
};

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

struct RegexNode {
  enum class Kind { characters, sequence, alternatives, repeat };
  Kind kind = Kind::sequence;
  std::vector<CodePoints> characters;  // any one of these; disjoint and sorted
  std::vector<RegexNode> parts;        // exactly one for a repeat
  int64_t min                = 0;      // repeats
  std::optional<int64_t> max = {};
};

// `pattern` is well-formed UTF-8, of the subset that compile_string_regex() documents. Where ^ or $ is
// missing, the tree begins or ends with any text. The error names the byte and the problem.
Result<RegexNode> parse_regex(std::string_view pattern);

}  // namespace fathom::grammar
