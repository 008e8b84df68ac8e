#include "core/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fathom {

Result<std::string> read_file(const std::filesystem::path& path) {
  const auto failed = [&] {
    return Error{fmt::format("{} cannot be read: {}", path.string(), std::strerror(errno))};
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed();
  std::string text;
  for (char piece[1 << 16];;) {
    const ssize_t n = read(file, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const Error error = failed();
      close(file);
      return error;
    }
    if (n == 0) break;
    text.append(piece, static_cast<size_t>(n));
  }
  close(file);
  return text;
}

}  // namespace fathom
