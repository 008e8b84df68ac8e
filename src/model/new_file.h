// A file that appears whole or not at all: it grows under a temporary name in the same folder, which
// publish() changes into its own. A process that is killed leaves `<name>.<pid>.partial` behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom::model {

class NewFile {
 public:
  // Creates the folder too, and reserves `bytes` on the disk where the file system can.
  static Result<NewFile> create(const std::filesystem::path& path, int64_t bytes);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();  // what was not published goes away

  // Threads may write at once. Throws SystemError.
  void write(int64_t offset, std::span<const std::byte> bytes) const;
  void publish();  // replaces what was there; throws SystemError

 private:
  NewFile(std::filesystem::path path, std::string partial, int file);

  std::filesystem::path path_;
  std::string partial_;  // its name until then
  int file_;             // -1: published, or moved from
};

Status write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace fathom::model
