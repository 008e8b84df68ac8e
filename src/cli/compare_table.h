// Comparisons of runs as tables.
#pragma once

#include <string>

#include "cli/table.h"
#include "lab/compare.h"

namespace fathom::cli {

enum class Display { simple, intervals, explain };

// simple: verdicts; intervals: with the intervals behind them; explain: with the reason in words.
Table compare_table(const lab::Comparison& comparison, Display display);
Table compare_values(const lab::Comparison& comparison);  // plain numbers
std::string compare_summary(const lab::Comparison& comparison);

}  // namespace fathom::cli
