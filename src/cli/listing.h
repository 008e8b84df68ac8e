// What there is, for `list` and `run --list`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/table.h"
#include "lab/target.h"

namespace fathom::cli {

std::string listing_text(const lab::Targets& targets);
Table listing_table(const lab::Targets& targets);
nlohmann::json listing_json(const lab::Targets& targets);

}  // namespace fathom::cli
