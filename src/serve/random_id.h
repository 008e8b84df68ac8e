// Random ids and seeds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fathom::serve {

// `prefix` and 32 random hexadecimal digits: "chatcmpl-0123...".
std::string new_id(std::string_view prefix);
uint64_t random_seed();

}  // namespace fathom::serve
