// The file of a storage experiment. It never has a name, so it disappears however the process ends. It is
// read with O_DIRECT: past the page cache, from the device. (The device, or the host of a virtual machine,
// may still cache it.)
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "core/view.h"
#include "lab/problem.h"

namespace fathom::lab {

class ScratchFile {
 public:
  // O_DIRECT wants buffers, offsets and lengths in multiples of the device's block; this is enough
  // everywhere.
  static constexpr int64_t kAlignment = 4096;

  // In the first folder that lies on a disk and takes O_DIRECT: $TMPDIR, $XDG_CACHE_HOME/fathom or
  // ~/.cache/fathom, /var/tmp, /tmp. Without such a folder the experiment is skipped with a typed reason.
  ScratchFile() {
    for (const std::filesystem::path& folder : folders())
      if (open_in(folder)) return;
    throw Unavailable(
        "needs_feature",
        fmt::format("a folder on a disk for a file read with O_DIRECT; set TMPDIR to one ({})", refusals_));
  }
  ~ScratchFile() {
    close(buffered_);
    close(direct_);
  }
  ScratchFile(const ScratchFile&)            = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Replaces the contents. Afterwards they are on the device and not in the page cache.
  void rewrite(const void* data, int64_t bytes) const {
    const auto* from = static_cast<const char*>(data);
    for (int64_t done = 0; done < bytes;)
      done += FATHOM_SYSTEM(pwrite(buffered_, from + done, static_cast<size_t>(bytes - done), done));
    FATHOM_SYSTEM(fdatasync(buffered_));
    (void)posix_fadvise(buffered_, 0, 0, POSIX_FADV_DONTNEED);  // direct reads look there first
  }

  int direct() const { return direct_; }

  // Blocks until all of it is in `to`; all three in multiples of kAlignment, `to` included.
  void read(void* to, int64_t bytes, int64_t offset) const {
    const int fd = direct();
    for (int64_t done = 0; done < bytes;) {
      const ssize_t got = FATHOM_SYSTEM(
          pread(fd, static_cast<char*>(to) + done, static_cast<size_t>(bytes - done), offset + done));
      FATHOM_EXPECT(got > 0, "the scratch file is shorter than the problem says");
      done += got;
    }
  }

 private:
  static std::vector<std::filesystem::path> folders() {
    const auto variable = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value ? value : "");
    };
    std::vector<std::filesystem::path> list;
    if (const std::string own = variable("TMPDIR"); !own.empty()) list.emplace_back(own);
    if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
      list.push_back(std::filesystem::path(cache) / "fathom");
    else if (const std::string home = variable("HOME"); !home.empty())
      list.push_back(std::filesystem::path(home) / ".cache/fathom");
    list.emplace_back("/var/tmp");
    list.emplace_back("/tmp");
    return list;
  }

  bool open_in(const std::filesystem::path& folder) {
    const auto refuse = [&](const char* why) {
      refusals_ += fmt::format("{}{}: {}", refusals_.empty() ? "" : "; ", folder.string(), why);
      if (buffered_ >= 0) close(std::exchange(buffered_, -1));
      return false;
    };
    constexpr long kTmpfs = 0x01021994, kRamfs = 0x858458F6;  // f_type, linux/magic.h
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    struct statfs system;
    if (statfs(folder.c_str(), &system) != 0) return refuse(std::strerror(errno));
    if (system.f_type == kTmpfs || system.f_type == kRamfs) return refuse("lives in memory");

    std::string path = (folder / "fathom-XXXXXX").string();
    buffered_        = mkostemp(path.data(), O_CLOEXEC);
    if (buffered_ < 0) return refuse(std::strerror(errno));
    direct_         = open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    const int error = errno;
    unlink(path.c_str());
    return direct_ >= 0 || refuse(std::strerror(error));
  }

  int buffered_ = -1, direct_ = -1;
  std::string refusals_;
};

// Where direct reads may go in a workspace declared with kAlignment bytes more than they need.
inline uint8_t* aligned(View<uint8_t, 1> workspace) {
  const auto at     = reinterpret_cast<uintptr_t>(workspace.data());
  constexpr auto kA = static_cast<uintptr_t>(ScratchFile::kAlignment);
  return reinterpret_cast<uint8_t*>((at + kA - 1) / kA * kA);
}

}  // namespace fathom::lab
