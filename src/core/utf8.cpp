#include "core/utf8.h"

#include <algorithm>

namespace fathom {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Kind { whole, truncated, ill_formed };

struct Sequence {
  size_t size = 1;  // of the character or of the maximal ill-formed subpart
  Kind kind   = Kind::ill_formed;
};

// Precondition: bytes is not empty.
Sequence first_sequence(std::string_view bytes) {
  const auto at       = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return {1, Kind::whole};
  if (lead < 0xC2 || lead > 0xF4) return {1, Kind::ill_formed};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The range of the second byte, narrower where it excludes overlong forms, surrogates and values above
  // U+10FFFF.
  const unsigned lo = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned hi = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {i, Kind::truncated};
    if (at(i) < (i == 1 ? lo : 0x80) || at(i) > (i == 1 ? hi : 0xBF)) return {i, Kind::ill_formed};
  }
  return {size, Kind::whole};
}

}  // namespace

std::string well_formed(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Sequence sequence = first_sequence(bytes);
    text += sequence.kind == Kind::whole ? bytes.substr(0, sequence.size) : kReplacement;
    bytes.remove_prefix(sequence.size);
  }
  return text;
}

bool is_well_formed(std::string_view bytes) {
  while (!bytes.empty()) {
    const Sequence sequence = first_sequence(bytes);
    if (sequence.kind != Kind::whole) return false;
    bytes.remove_prefix(sequence.size);
  }
  return true;
}

size_t incomplete_suffix(std::string_view bytes) {
  for (size_t size = std::min<size_t>(3, bytes.size()); size > 0; --size) {
    const Sequence sequence = first_sequence(bytes.substr(bytes.size() - size));
    if (sequence.kind == Kind::truncated && sequence.size == size) return size;
  }
  return 0;
}

}  // namespace fathom
