#include "cli/speculative_flags.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace fathom::cli {
namespace {

using nlohmann::json;
using DraftMethod = engine::EngineConfig::DraftMethod;

constexpr const char* kSpeculativeKeys =
    "method, num_speculative_tokens, prompt_lookup_min, prompt_lookup_max, model and draft_budget";

Status speculative_number(const json& value, const std::string& key, int64_t least, int64_t most,
                          int64_t& into) {
  if (!value.is_number_integer() || value < least || value > most)
    return Error{fmt::format("--speculative-config: {} is {}, but must be a whole number from {} to {}", key,
                             value.dump(), least, most)};
  into = value.get<int64_t>();
  return Ok{};
}

Status speculative_method(const json& value, DraftMethod& into) {
  if (value == "ngram") return into = DraftMethod::ngram, Ok{};
  if (value == "suffix") return into = DraftMethod::suffix, Ok{};
  if (value == "eagle3") return into = DraftMethod::eagle3, Ok{};
  return Error{fmt::format(
      "--speculative-config: method is {}, but must be \"ngram\", \"suffix\" or \"eagle3\"", value.dump())};
}

}  // namespace

Status set_speculative_config(const std::string& text, engine::EngineConfig& config) {
  const json read = json::parse(text, nullptr, false);
  if (!read.is_object())
    return Error{fmt::format("--speculative-config is {}, but must be a JSON object such as {}", text,
                             R"({"method": "suffix", "num_speculative_tokens": 7})")};
  engine::EngineConfig c = config;
  c.draft_tokens         = 0;
  c.draft_budget         = true;
  for (const auto& [key, value] : read.items()) {
    Status good = Ok{};
    if (key == "method") {
      good = speculative_method(value, c.draft_method);
    } else if (key == "num_speculative_tokens") {
      good = speculative_number(value, key, 1, 15, c.draft_tokens);
    } else if (key == "prompt_lookup_min") {
      good = speculative_number(value, key, 1, 64, c.prompt_lookup_min);
    } else if (key == "prompt_lookup_max") {
      good = speculative_number(value, key, 1, 64, c.prompt_lookup_max);
    } else if (key == "model" && value.is_string()) {
      c.draft_model = value.get<std::string>();
    } else if (key == "draft_budget" && value.is_boolean()) {
      c.draft_budget = value.get<bool>();
    } else if (key == "model" || key == "draft_budget") {
      good = Error{fmt::format("--speculative-config: {} is {}, but must be {}", key, value.dump(),
                               key == "model" ? "a folder's name" : "true or false")};
    } else {
      good = Error{fmt::format("--speculative-config has {}, but its keys are {}", key, kSpeculativeKeys)};
    }
    if (!good) return good.error();
  }
  if (!read.contains("method"))
    return Error{"--speculative-config has no method: give \"ngram\", \"suffix\" or \"eagle3\""};
  if (c.draft_tokens == 0)
    return Error{
        "--speculative-config has no num_speculative_tokens: give the tokens of a draft at most, 1 to 15"};
  if ((c.draft_method == DraftMethod::eagle3) == c.draft_model.empty())
    return Error{c.draft_model.empty()
                     ? "--speculative-config: method \"eagle3\" needs \"model\", the draft model's folder"
                     : "--speculative-config: \"model\" is of method \"eagle3\" only"};
  config = c;
  return Ok{};
}

}  // namespace fathom::cli
