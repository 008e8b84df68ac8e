// The fields of a config that decide what a forward pass computes.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fathom::model {

struct Config;

// Names as in config.json, and values as text. first_difference() compares them in this order.
std::vector<std::pair<std::string, std::string>> fields_of(const Config& config);

}  // namespace fathom::model
