// The scratch file through the page cache: opened again, by way of /proc since it has no name, without
// O_DIRECT.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "core/expect.h"
#include "experiments/ch05_storage/scratch_file.h"

namespace fathom::lab {

class BufferedFile {
 public:
  explicit BufferedFile(const ScratchFile& file)
      : fd_(static_cast<int>(FATHOM_SYSTEM(
            open(fmt::format("/proc/self/fd/{}", file.direct()).c_str(), O_RDONLY | O_CLOEXEC)))) {}
  ~BufferedFile() { close(fd_); }
  BufferedFile(const BufferedFile&)            = delete;
  BufferedFile& operator=(const BufferedFile&) = delete;

  // Takes the file out of the page cache: rewrite() has synced it, so that all its pages are clean.
  void drop() const { advise(POSIX_FADV_DONTNEED); }

  void advise(int advice) const {
    const int error = posix_fadvise(fd_, 0, 0, advice);
    if (error != 0) system_failed("posix_fadvise", error, __FILE__, __LINE__);
  }

  // Blocks until all of it is in `to`.
  void read(void* to, int64_t bytes, int64_t offset) const {
    for (int64_t done = 0; done < bytes;) {
      const ssize_t got = FATHOM_SYSTEM(
          pread(fd_, static_cast<char*>(to) + done, static_cast<size_t>(bytes - done), offset + done));
      FATHOM_EXPECT(got > 0, "the scratch file is shorter than the problem says");
      done += got;
    }
  }

 private:
  int fd_;
};

}  // namespace fathom::lab
