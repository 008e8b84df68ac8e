// Ratios with their intervals as HTML boxes placed in percent of their cell: they fit a cell of any width
// without a script, and no word is near them that they could cover.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lab/record.h"
#include "report/svg.h"

namespace fathom::report {

// In percent from 0 to 100, logarithmic, around the medians and 1; an interval widens it by at most 3 times,
// so that one very wide interval does not flatten the others.
Scale ratio_scale(std::span<const lab::Ratio> ratios);

std::string percent_text(double percent);  // "12.3%", between 0 and 100
std::string ratio_tick(double ratio);      // "0.5", "1000"

// "good", "bad", "same", "doubt" or "void", and how it reads: "▲ FASTER".
struct VerdictLook {
  std::string_view style;
  std::string_view words;
};
VerdictLook look_of(const lab::VariantRecord& variant);

// `null`: a cell with the line of 1 alone. A library and the engine's op get a diamond.
std::string interval_bar(const Scale& scale, const lab::VariantRecord* variant);
std::string interval_axis(const Scale& scale, int most_ticks);  // the ticks above a column of bars

}  // namespace fathom::report
