// A run as tables: text and Markdown for people, CSV for programs.
#pragma once

#include <string>

#include "cli/table.h"
#include "lab/record.h"

namespace fathom::cli {

Table result_table(const lab::RunRecord& run);  // quantities as people read them
// The same for a terminal: what was skipped is folded into a line for each reason.
std::string result_text(const lab::RunRecord& run, int columns = text_columns());
// Of a run in fresh processes: what the start of a process, its GPU, its inputs and prepare() took, the first
// call and the later ones. Empty where no point was measured so.
std::string first_use_text(const lab::RunRecord& run, int columns = text_columns());
// Plain numbers, ns and shares of 1, one row for each variant and point.
Table result_values(const lab::RunRecord& run);
Table check_table(const lab::RunRecord& run);  // for `verify`: which outputs were right
// The same for a terminal: a line for the variants of an experiment that were right, one for each that was
// not, and one for each reason to skip.
std::string check_text(const lab::RunRecord& run, int columns = text_columns());

// "skipped: 11 variants of 4 experiments: needs_cuda: a GPU", a line for each reason, the most frequent
// first; empty if nothing was skipped.
std::string skips_text(const lab::RunRecord& run, int columns = text_columns());

std::string tally_text(const lab::RunRecord& run);  // "27 experiments: 31 faster, 2 same, ..., 9 skipped"

}  // namespace fathom::cli
