// JSON of measured quantities, and JSON files, for the caches of the CPU's and the GPUs' ceilings.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "core/dtype.h"
#include "core/result.h"
#include "machine/ceilings.h"

namespace fathom::machine {

nlohmann::json measured_to_json(const Measured& measured);  // null where nothing was measured

// These throw nlohmann's exceptions, and std::range_error for values that no measurement gives.
Measured measured_from_json(const nlohmann::json& json);
DType dtype_from_json(const nlohmann::json& json);

// The inverse of to_string().
template <class E, size_t N>
E enum_from_json(const nlohmann::json& json, const E (&values)[N]) {
  const std::string name = json;
  for (const E value : values)
    if (to_string(value) == name) return value;
  throw std::range_error(fmt::format("\"{}\" is not known", name));
}

template <class T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}
template <class T>
std::optional<T> optional_from_json(const nlohmann::json& json) {
  if (json.is_null()) return std::nullopt;
  return json.get<T>();
}

inline constexpr Traffic kAllTraffic[] = {Traffic::read, Traffic::write, Traffic::write_nontemporal,
                                          Traffic::copy, Traffic::copy_nontemporal};
static_assert(std::size(kAllTraffic) == kTraffics);

Result<nlohmann::json> read_json_file(const std::string& path);
void write_json_file(const nlohmann::json& json, const std::string& path);  // whole or not at all

}  // namespace fathom::machine
