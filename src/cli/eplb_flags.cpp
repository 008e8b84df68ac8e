#include "cli/eplb_flags.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace fathom::cli {

Status set_eplb_config(const std::string& text, engine::EngineConfig::Eplb& eplb) {
  using nlohmann::json;
  const json read = json::parse(text, nullptr, false);
  if (!read.is_object())
    return Error{fmt::format("--eplb-config is {}, but must be a JSON object such as {}", text,
                             R"({"step_interval": 3000, "num_redundant_experts": 2})")};
  engine::EngineConfig::Eplb config = eplb;
  for (const auto& [key, value] : read.items()) {
    if (key == "log_balancedness") {
      if (!value.is_boolean())
        return Error{fmt::format("--eplb-config: {} is {}, but must be true or false", key, value.dump())};
      config.log_balancedness = value.get<bool>();
      continue;
    }
    int64_t* number = key == "window_size"                 ? &config.window_size
                      : key == "step_interval"             ? &config.step_interval
                      : key == "num_redundant_experts"     ? &config.num_redundant_experts
                      : key == "log_balancedness_interval" ? &config.log_balancedness_interval
                                                           : nullptr;
    if (!number)
      return Error{
          fmt::format("--eplb-config has {}, but its keys are window_size, step_interval, "
                      "num_redundant_experts, log_balancedness and log_balancedness_interval",
                      key)};
    const int64_t least = number == &config.num_redundant_experts ? 0 : 1, most = int64_t{1} << 20;
    if (!value.is_number_integer() || value < least || value > most)
      return Error{fmt::format("--eplb-config: {} is {}, but must be a whole number from {} to {}", key,
                               value.dump(), least, most)};
    *number = value.get<int64_t>();
  }
  eplb = config;
  return Ok{};
}

}  // namespace fathom::cli
