// A run as tables: text and Markdown for people, CSV for programs.
#pragma once

#include <string>

#include "cli/table.h"
#include "lab/record.h"

namespace fathom::cli {

Table result_table(const lab::RunRecord& run);  // quantities as people read them
// Plain numbers, ns and shares of 1, one row for each variant and point.
Table result_values(const lab::RunRecord& run);
Table check_table(const lab::RunRecord& run);  // for `verify`: which outputs were right

std::string tally_text(const lab::RunRecord& run);  // "27 experiments: 31 faster, 2 same, ..., 9 skipped"

}  // namespace fathom::cli
