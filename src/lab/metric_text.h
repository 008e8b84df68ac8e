// A record's metrics and noise as text for people. Their names end in the unit: "steal_ms", "tail_ns".
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace fathom::lab {

std::pair<std::string, std::string_view> name_and_unit(std::string_view name);  // "steal" and "ms"
std::string number_text(double value);  // "1,048,576" where it is whole, "0.913" where it is not

std::string metric_name_text(std::string_view name);                 // "sm busy, %"; "tail" of tail_ns
std::string metric_value_text(std::string_view name, double value);  // "0.913"; "1.30 ms", "12.3 GB/s"

}  // namespace fathom::lab
