// The kernel's view of host memory, /proc/meminfo.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fathom {

// Bytes of one line, e.g. "MemTotal" or "MemAvailable"; nothing where the file or the line is missing.
std::optional<int64_t> proc_meminfo(std::string_view key);

// The same from the text of such a file.
std::optional<int64_t> parse_meminfo(std::string_view text, std::string_view key);

}  // namespace fathom
