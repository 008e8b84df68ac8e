#include "serve/random_id.h"

#include <fmt/format.h>

#include <random>

namespace fathom::serve {

uint64_t random_seed() {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return random();
}

std::string new_id(std::string_view prefix) {
  const uint64_t high = random_seed(), low = random_seed();
  return fmt::format("{}{:016x}{:016x}", prefix, high, low);
}

}  // namespace fathom::serve
