// What a run over several chapters comes to, in at most ten lines: the machine, its three ceilings, the three
// largest gains, and what was not measured and why.
#pragma once

#include <string>

#include "cli/table.h"
#include "lab/record.h"

namespace fathom::cli {

// Empty for a run of one chapter, whose table says it all.
std::string run_summary(const lab::RunRecord& run, int columns = text_columns());

// The variants with the largest speed-up, at most `most`, of different experiments: "4.80× [4.75, 4.86]
// ch07/x/tiled". Only of ours, FASTER by a verdict that counts.
std::vector<std::string> largest_gains(const lab::RunRecord& run, size_t most);

}  // namespace fathom::cli
