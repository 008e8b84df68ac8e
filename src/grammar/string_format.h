// JSON Schema's `format` keyword as regular expressions.
#pragma once

#include <string_view>

namespace fathom::grammar {

// A pattern for compile_string_regex() that matches at most what the format allows; "" for an unknown format.
std::string_view pattern_of_format(std::string_view format);
inline constexpr std::string_view kFormats =
    "date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6";

}  // namespace fathom::grammar
