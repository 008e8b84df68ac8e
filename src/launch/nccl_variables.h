// Which variables NCCL reads, and which values it takes.
#pragma once

#include <string>
#include <string_view>

namespace fathom::launch {

// A list of NCCL_ALGO without the algorithms of NVLink multicast (NVLS, NVLSTree). Empty where nothing is
// left.
std::string without_nvls(std::string_view algorithms);

}  // namespace fathom::launch
