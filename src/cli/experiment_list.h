// The list of experiments that `list` and `run --list` print.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/table.h"
#include "lab/target.h"

namespace fathom::cli {

std::string experiment_list_text(const lab::Targets& targets, int columns = text_columns());
Table experiment_list_table(const lab::Targets& targets);
nlohmann::json experiment_list_json(const lab::Targets& targets);

}  // namespace fathom::cli
