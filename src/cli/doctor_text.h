// Layout of doctor's text: sections, facts, sentences wrapped to the terminal, tables of measured quantities.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "machine/ceilings.h"
#include "machine/measurement_scope.h"

namespace fathom::cli {

template <class... Arguments>
void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::print("{}\n", fmt::format(format, std::forward<Arguments>(arguments)...));
}

void section(std::string_view name);
void fact(std::string_view name, std::string_view value);
void folded(std::string_view mark, std::string_view sentence);

std::string size_text(int64_t bytes);         // "228 KiB"
std::string number(double value, int width);  // four significant digits, or all digits of a large number

// One measured quantity in a table: median, interval and best, in `unit`.
std::string cell(const machine::Measured& measured, double unit);
inline constexpr std::string_view kCellNames = "  median [  95 % interval ]     best";

void header(std::string_view unit, std::string_view first, std::string_view second = {});
// `all`: the same quantity with all threads, or null.
void row(std::string_view name, const machine::Measured& one, const machine::Measured* all, double unit);

void print_features(machine::FeatureKind wanted, std::string_view title);
void print_claims(const machine::MeasurementScope& claims, std::string_view of);  // "this machine"

}  // namespace fathom::cli
