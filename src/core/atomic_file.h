// Files that appear whole or not at all: they are written under a temporary name in the same folder, which
// publish() renames. A process that is killed leaves `<name>.<pid>.partial` behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom {

class NewFile {
 public:
  // Also creates the folder, and reserves `bytes` on the disk where the file system supports that.
  static Result<NewFile> create(const std::filesystem::path& path, int64_t bytes);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();  // deletes the file unless it was published

  // Several threads may write at once. Throws SystemError.
  void write(int64_t offset, std::span<const std::byte> bytes) const;
  // Flushes to disk. Called before publish(), lest a power cut leaves the new name without its contents.
  // Throws SystemError.
  void sync() const;
  void publish();  // replaces an earlier file of that name; throws SystemError

 private:
  NewFile(std::filesystem::path path, std::string partial, int file);

  std::filesystem::path path_;
  std::string partial_;  // its name until then
  int file_;             // -1: published, or moved from
};

// Both write, sync and publish. An error means that the file could not be created, or has no room; what fails
// later throws SystemError.
Status write_text_file(const std::filesystem::path& path, std::string_view text);
// Throws SystemError in either case.
void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

}  // namespace fathom
