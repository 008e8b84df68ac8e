// UTF-8 as the Unicode standard defines it (table 3-7): no overlong forms, no surrogates, nothing above
// U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fathom {

// Replaces every maximal subpart of an ill-formed sequence by one U+FFFD, as in Unicode 3.9, the WHATWG
// decoder and Rust's from_utf8_lossy. Returns well-formed input unchanged.
std::string well_formed(std::string_view bytes);

bool is_well_formed(std::string_view bytes);

// The number of bytes at the end, 0 to 3, that start a sequence which more bytes could complete.
size_t incomplete_suffix(std::string_view bytes);

}  // namespace fathom
