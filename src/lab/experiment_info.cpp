#include "lab/experiment_info.h"

#include <fmt/format.h>

namespace fathom::lab {

std::string_view to_string(Limit limit) {
  constexpr std::string_view kNames[] = {"memory", "flops", "tensor_flops",  "load_latency",
                                         "disk",   "link",  "shared_memory", "none"};
  return kNames[static_cast<int>(limit)];
}

std::string_view to_string(Cache cache) {
  constexpr std::string_view kNames[] = {"rotated", "hot", "cold"};
  return kNames[static_cast<int>(cache)];
}

std::string_view to_string(Backend backend) { return backend == Backend::cuda ? "cuda" : "cpu"; }

std::string_view to_string(Kind kind) {
  constexpr std::string_view kNames[] = {"baseline", "optimized", "library", "engine"};
  return kNames[static_cast<int>(kind)];
}

std::string Prediction::to_string() const {
  if (of == Of::nothing) return {};
  return fmt::format("{} {}{:.3g}", of == Of::share ? "share" : "ratio", at_least ? ">= " : "", value);
}

bool Prediction::held(double measured) const {
  return measured >= (at_least ? 1 : 0.9) * value && (at_least || measured <= 1.1 * value);
}

}  // namespace fathom::lab
