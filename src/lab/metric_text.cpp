#include "lab/metric_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lab/quantity.h"

namespace fathom::lab {

std::pair<std::string, std::string_view> name_and_unit(std::string_view name) {
  std::string_view unit;
  for (const std::string_view suffix : {"_ms", "_us", "_ns", "_mhz", "_pct", "_w", "_c", "_s"})
    if (name.ends_with(suffix) && !name.ends_with("per_s")) {
      unit = suffix.substr(1);
      name.remove_suffix(suffix.size());
      break;
    }
  std::string words(name);
  if (words.ends_with("_per_s")) words.replace(words.size() - 6, 6, "/s");
  std::replace(words.begin(), words.end(), '_', ' ');
  return {words, unit == "mhz" ? "MHz" : unit == "w" ? "W" : unit == "c" ? "°C" : unit == "pct" ? "%" : unit};
}

std::string number_text(double value) {
  return value == std::trunc(value) && std::abs(value) < 1e15 ? count_text(static_cast<int64_t>(value))
                                                              : digits_text(value);
}

std::string metric_name_text(std::string_view name) {
  const auto [words, unit] = name_and_unit(name);
  return unit.empty() || unit == "ns" ? words : words + ", " + std::string(unit);
}

std::string metric_value_text(std::string_view name, double value) {
  return name.ends_with("_ns")           ? time_text(value)
         : name.ends_with("bytes_per_s") ? bytes_per_s_text(value)
         : name.ends_with("flops_per_s") ? flops_per_s_text(value)
                                         : number_text(value);
}

}  // namespace fathom::lab
