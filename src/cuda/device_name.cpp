#include "cuda/device_name.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

namespace fathom {

std::string to_string(DeviceId id) { return fmt::format("cuda:{}", id.ordinal); }

Result<DeviceId> parse_device_id(std::string_view text) {
  constexpr std::string_view kCuda = "cuda", kOrdinal = "cuda:";
  if (text == kCuda) return DeviceId{};
  int ordinal = -1;
  if (text.starts_with(kOrdinal)) {
    const auto parsed = std::from_chars(text.data() + kOrdinal.size(), text.data() + text.size(), ordinal);
    if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) ordinal = -1;
  }
  if (ordinal < 0 || ordinal >= kMaxGpus)
    return Error{
        fmt::format("{} is no device: write cuda, or cuda:N with N from 0 to {}", text, kMaxGpus - 1)};
  return DeviceId{ordinal};
}

std::string no_such_device(DeviceId id, int count) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return fmt::format("{}: this process sees {} GPU{} (CUDA_VISIBLE_DEVICES{})", to_string(id), count,
                     count == 1 ? "" : "s", visible ? fmt::format("={}", visible) : " is not set");
}

}  // namespace fathom
