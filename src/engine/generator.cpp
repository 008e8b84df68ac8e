#include "engine/generator.h"

namespace fathom::engine {

std::string_view name_of(FinishReason reason) {
  constexpr std::string_view kNames[kFinishReasons] = {"stop", "length", "abort", "error"};
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace fathom::engine
