// Quantities as text for people: three significant digits, a unit, and a dash for a value that is no number.
// Also the escaping of text for HTML and SVG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fathom::lab {

inline constexpr std::string_view kAbsent = "–";  // stands where nothing was measured

// Fixed notation with so many significant digits: 0.0123, 1.30, 782. Never an exponent between 1e-6 and 1e9.
std::string digits_text(double value, int significant = 3);

std::string time_text(double ns);           // "1.30 ms"
std::string bytes_per_s_text(double rate);  // "12.3 GB/s", powers of 1000
std::string flops_per_s_text(double rate);  // "782 GFLOP/s"
std::string count_text(int64_t count);      // "1,048,576"
std::string error_text(double error);       // "3.1e-6"
std::string share_text(double share);       // 0.913 -> "91.3 %"
// "2.41×"; three decimals near 1, where the margin of 2 % has to be legible.
std::string ratio_text(double ratio);

// "[1.29, 1.31]" in the unit of the text of `median`, with its decimals or as many as tell the ends apart.
std::string time_interval_text(double median, double lo, double hi);
std::string ratio_interval_text(double median, double lo, double hi);

// For HTML and XML, inside elements and quoted attributes. Control characters, which XML forbids, become
// U+FFFD.
std::string escape(std::string_view text);

}  // namespace fathom::lab
