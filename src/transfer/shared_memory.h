// Memory that other processes of this user on this host can map. It has no name in a file system, so nothing
// is left behind by a process that is killed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"

namespace fathom::transfer {

class SharedMemory {
 public:
  // Zeros; a page takes memory once it is touched. Throws std::system_error.
  explicit SharedMemory(size_t bytes);
  // Maps the memory of another process, or of this one, by its path().
  static Result<SharedMemory> open(const std::string& path);
  // The same mapping for all who ask for it in this process, kept while its owner lives: the first write to
  // each 4 KiB of a new one is a page fault.
  static Result<std::shared_ptr<const SharedMemory>> open_shared(const std::string& path);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return {data_, size_}; }
  // Valid while the process that made it lives: "/proc/4711/fd/5".
  const std::string& path() const { return path_; }

 private:
  SharedMemory(int file, std::byte* data, size_t size, std::string path);
  bool is_at_path() const;  // false: another process or file has that path now, or none

  int file_        = -1;
  std::byte* data_ = nullptr;
  size_t size_     = 0;
  std::string path_;
};

}  // namespace fathom::transfer
