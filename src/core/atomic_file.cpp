#include "core/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/expect.h"

namespace fathom {

Result<NewFile> NewFile::create(const std::filesystem::path& path, int64_t bytes) {
  FATHOM_EXPECT(bytes >= 0, "a file has no negative size");
  std::error_code ignored;  // a failure shows in open(), with errno
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  std::string partial = fmt::format("{}.{}.partial", path.string(), getpid());
  const int file      = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file == -1)
    return Error{fmt::format("{}: cannot be created: {}: name a folder you may write to", path.string(),
                             std::strerror(errno))};
  NewFile created(path, std::move(partial), file);
  // Other errors mean that this file system cannot reserve; write() then reports a full disk.
  if (bytes > 0 && ::fallocate(file, 0, 0, bytes) == -1 && (errno == ENOSPC || errno == EFBIG))
    return Error{fmt::format("{}: its {} bytes do not fit there: {}: free some space, or name another disk",
                             path.string(), bytes, std::strerror(errno))};
  return created;
}

NewFile::NewFile(std::filesystem::path path, std::string partial, int file)
    : path_(std::move(path)), partial_(std::move(partial)), file_(file) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      file_(std::exchange(other.file_, -1)) {}

NewFile::~NewFile() {
  if (file_ == -1) return;
  ::close(file_);
  ::unlink(partial_.c_str());
}

void NewFile::write(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), offset);
    if (written == -1 && errno == EINTR) continue;
    if (written == -1) system_failed(("pwrite to " + partial_).c_str(), errno, __FILE__, __LINE__);
    offset += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void NewFile::publish() {
  if (::close(std::exchange(file_, -1)) == -1 || ::rename(partial_.c_str(), path_.c_str()) == -1) {
    const int error = errno;
    ::unlink(partial_.c_str());
    system_failed(("rename to " + path_.string()).c_str(), error, __FILE__, __LINE__);
  }
}

void NewFile::sync() const {
  // EINVAL: no file on a disk, so nothing to flush.
  if (::fsync(file_) == -1 && errno != EINVAL)
    system_failed(("fsync of " + partial_).c_str(), errno, __FILE__, __LINE__);
}

Status write_text_file(const std::filesystem::path& path, std::string_view text) {
  auto file = NewFile::create(path, static_cast<int64_t>(text.size()));
  if (!file) return file.error();
  file->write(0, std::as_bytes(std::span(text)));
  file->sync();
  file->publish();
  return Ok{};
}

void write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  if (const Status written = write_text_file(path, contents); !written)
    throw SystemError(written.error().message);
}

}  // namespace fathom
