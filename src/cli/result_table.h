// A run as tables: for people in text and Markdown, for programs in CSV.
#pragma once

#include <string>

#include "cli/table.h"
#include "lab/record.h"

namespace fathom::cli {

Table result_table(const lab::RunRecord& run);  // quantities as people read them
Table result_values(
    const lab::RunRecord& run);  // plain numbers, ns and shares of 1, one row a variant and point
Table check_table(const lab::RunRecord& run);  // of `verify`: what was right

std::string tally_text(const lab::RunRecord& run);  // "27 experiments: 31 faster, 2 same, ..., 9 skipped"

}  // namespace fathom::cli
