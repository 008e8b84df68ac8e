// A DFA for the inside of a JSON string (RFC 8259 section 7): UTF-8 (Unicode table 3-7) and escapes. Escaped
// surrogates must come in pairs, so that the string always decodes to text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace fathom::grammar {

enum class StringState : uint8_t {
  body,   // between characters
  tail1,  // number of continuation bytes that the character still needs
  tail2,
  tail3,
  // After these lead bytes the next byte has a narrower range: no overlong forms, no surrogates, nothing
  // above U+10FFFF.
  after_e0,
  after_ed,
  after_f0,
  after_f4,
  escape,      // after a backslash
  hex4,        // number of digits of \uXXXX to come
  hex3,        //
  hex2,        //
  hex1,        //
  hex_d,       // after \uD: a surrogate or not
  high2,       // number of digits of a high surrogate to come
  high1,       //
  low_escape,  // the backslash of the low surrogate that must follow
  low_u,
  low_d,
  low_c,   // a digit C to F
  closed,  // after the closing quote
  invalid,
};

constexpr StringState next_string_state(StringState state, uint8_t byte) {
  using enum StringState;
  const auto in  = [&](int first, int last) { return byte >= first && byte <= last; };
  const bool hex = in('0', '9') || in('a', 'f') || in('A', 'F');
  switch (state) {
    case body:
      if (byte == '"') return closed;
      if (byte == '\\') return escape;
      if (in(0x20, 0x7F)) return body;
      if (in(0xC2, 0xDF)) return tail1;
      if (in(0xE0, 0xEF)) return byte == 0xE0 ? after_e0 : byte == 0xED ? after_ed : tail2;
      if (in(0xF0, 0xF4)) return byte == 0xF0 ? after_f0 : byte == 0xF4 ? after_f4 : tail3;
      return invalid;
    case tail1:
      return in(0x80, 0xBF) ? body : invalid;
    case tail2:
      return in(0x80, 0xBF) ? tail1 : invalid;
    case tail3:
      return in(0x80, 0xBF) ? tail2 : invalid;
    case after_e0:
      return in(0xA0, 0xBF) ? tail1 : invalid;
    case after_ed:
      return in(0x80, 0x9F) ? tail1 : invalid;
    case after_f0:
      return in(0x90, 0xBF) ? tail2 : invalid;
    case after_f4:
      return in(0x80, 0x8F) ? tail2 : invalid;
    case escape:
      for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'})
        if (byte == static_cast<uint8_t>(c)) return body;
      return byte == 'u' ? hex4 : invalid;
    case hex4:
      return byte == 'd' || byte == 'D' ? hex_d : hex ? hex3 : invalid;
    case hex3:
      return hex ? hex2 : invalid;
    case hex2:
      return hex ? hex1 : invalid;
    case hex1:
      return hex ? body : invalid;
    case hex_d:
      return in('0', '7') ? hex2 : in('8', '9') || in('a', 'b') || in('A', 'B') ? high2 : invalid;
    case high2:
      return hex ? high1 : invalid;
    case high1:
      return hex ? low_escape : invalid;
    case low_escape:
      return byte == '\\' ? low_u : invalid;
    case low_u:
      return byte == 'u' ? low_d : invalid;
    case low_d:
      return byte == 'd' || byte == 'D' ? low_c : invalid;
    case low_c:
      return in('c', 'f') || in('C', 'F') ? hex2 : invalid;
    case closed:
    case invalid:
      break;
  }
  return invalid;
}

using StringTable = std::array<std::array<StringState, 256>, static_cast<size_t>(StringState::closed)>;

inline constexpr StringTable kStringTable = [] {
  StringTable table{};
  for (size_t state = 0; state < table.size(); ++state)
    for (int byte = 0; byte < 256; ++byte)
      table[state][static_cast<size_t>(byte)] =
          next_string_state(static_cast<StringState>(state), static_cast<uint8_t>(byte));
  return table;
}();

// The spelling of nlohmann::json and of Python's json with ensure_ascii=False: only the quote, the backslash
// and control characters are escaped. Names and enum values have this one spelling.
// `text` is well-formed UTF-8; the result has quotes.
std::string canonical_json_string(std::string_view text);
// "" for a byte that needs no escape.
std::string canonical_json_escape(uint8_t byte);

}  // namespace fathom::grammar
