// What `fathom bench collectives --fabric` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/fabric.h"
#include "cli/table.h"

namespace fathom::cli {

// Matrices where they fit into `columns`, the slowest pair of each kind, the slow ones and what they have in
// common.
std::string fabric_text(const Fabric& fabric, int columns = text_columns());
Table fabric_table(const Fabric& fabric);  // a row a pair
nlohmann::json fabric_json(const Fabric& fabric, const std::string& transport);

}  // namespace fathom::cli
