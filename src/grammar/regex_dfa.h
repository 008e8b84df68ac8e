// Regular expressions compiled to DFAs over bytes: Thompson's construction, then determinisation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/result.h"
#include "grammar/byte_dfa.h"

namespace fathom::grammar {

// Length in code points.
struct StringLength {
  int64_t min                = 0;
  std::optional<int64_t> max = {};
};

// The JSON strings that match `pattern`, quotes included, in canonical spelling (json_string.h). `pattern` is
// a subset of ECMA 262 with the flag u: characters, . classes \d \w \s and their complements, groups, |,
// * + ? {m,n}, escapes, and ^ and $ at the ends of the pattern or of its outermost alternatives. As in JSON
// Schema, a pattern without anchors may match anywhere. The error names what is outside the subset and where,
// or says that the automaton is too large.
Result<ByteDfa> compile_string_regex(std::string_view pattern, const StringLength& length,
                                     CompileBudget& budget);

// The same for unquoted text of printable ASCII without quote and backslash: numbers.
Result<ByteDfa> compile_text_regex(std::string_view pattern, CompileBudget& budget);

}  // namespace fathom::grammar
