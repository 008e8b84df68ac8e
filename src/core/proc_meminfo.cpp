#include "core/proc_meminfo.h"

#include <fstream>
#include <sstream>
#include <string>

namespace fathom {
namespace {

std::optional<int64_t> find_line(std::istream& lines, std::string_view key) {
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    int64_t kib = 0;
    std::istringstream(line.substr(key.size() + 1)) >> kib;
    return kib * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> proc_meminfo(std::string_view key) {
  std::ifstream file("/proc/meminfo");
  return find_line(file, key);
}

std::optional<int64_t> parse_meminfo(std::string_view text, std::string_view key) {
  std::istringstream lines{std::string(text)};
  return find_line(lines, key);
}

}  // namespace fathom
