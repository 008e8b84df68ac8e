#include "core/read_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace fathom {

Result<std::string> read_file(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (in) text.assign(std::istreambuf_iterator<char>(in), {});
  // A folder opens, and its first read fails.
  if (!in || errno == EISDIR)
    return Error{fmt::format("{} cannot be read: {}", path.string(), std::strerror(errno ? errno : EIO))};
  return text;
}

}  // namespace fathom
