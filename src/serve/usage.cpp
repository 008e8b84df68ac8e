#include "serve/usage.h"

#include <nlohmann/json.hpp>

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

Json per_second(int64_t tokens, double ms) {
  if (tokens <= 0 || ms <= 0) return nullptr;
  return static_cast<double>(tokens) / ms * 1e3;
}

}  // namespace

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json timings_json(const Usage& usage) {
  const int64_t computed = usage.prompt_tokens - usage.cached_tokens;
  return {{"cache_n", usage.cached_tokens},
          {"prompt_n", computed},
          {"prompt_ms", usage.prompt_ms},
          {"prompt_per_second", per_second(computed, usage.prompt_ms)},
          {"predicted_n", usage.completion_tokens},
          {"predicted_ms", usage.predicted_ms},
          {"predicted_per_second", per_second(usage.completion_tokens - usage.choices, usage.predicted_ms)}};
}

void set_weight_version(Json& response, const Usage& usage) {
  if (!usage.weight_version.empty()) response["metadata"]["weight_version"] = usage.weight_version;
}

}  // namespace fathom::serve
