// How a command line spells a GPU.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "cuda/device_id.h"

namespace fathom {

std::string to_string(DeviceId id);  // "cuda:1"

// "cuda" is the first GPU, "cuda:N" the one of ordinal N. Whether there is such a GPU is for find_device() to
// say (cuda/device.h).
Result<DeviceId> parse_device_id(std::string_view text);

// Why there is no GPU of that ordinal where the process sees `count`: names CUDA_VISIBLE_DEVICES.
std::string no_such_device(DeviceId id, int count);

}  // namespace fathom
