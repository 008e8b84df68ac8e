// JSON strings that match a regular expression, as automata over the bytes of their JSON text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "engine/byte_dfa.h"

namespace fathom::engine {

// Length in code points.
struct StringLength {
  int64_t min                = 0;
  std::optional<int64_t> max = {};
};

// Strings, quotes included, in canonical spelling (json_string.h) that match `pattern`, a subset of ECMA 262
// with the flag u: characters, . classes \d \w \s and their complements, groups, |, * + ? {m,n}, escapes;
// ^ and $ at the ends of the pattern or of its outermost alternatives, and as in JSON Schema a match may lie
// anywhere without them. An error says what is not in the subset, and where; or that the automaton is too
// large.
Result<ByteDfa> compile_string_pattern(std::string_view pattern, const StringLength& length,
                                       CompileBudget& budget);

// The same for text that is not in quotes, of printable ASCII without quote and backslash: numbers.
Result<ByteDfa> compile_text_pattern(std::string_view pattern, CompileBudget& budget);

// JSON Schema's `format`: a pattern of the subset that is at most what the format allows; "" where it is not
// known.
std::string_view pattern_of_format(std::string_view format);
inline constexpr std::string_view kFormats =
    "date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6";

}  // namespace fathom::engine
