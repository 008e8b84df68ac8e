#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "core/expect.h"
#include "samples.h"

namespace fathom::lab::shard_packing {
namespace {

struct Descriptor {  // closes what it was given
  int fd;
  explicit Descriptor(int opened) : fd(opened) {}
  ~Descriptor() { close(fd); }
  Descriptor(const Descriptor&)            = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

int open_sample(int folder, int64_t s, int flags) {
  return static_cast<int>(
      FATHOM_SYSTEM(openat(folder, fmt::format("{:06}", s).c_str(), flags | O_CLOEXEC, 0600)));
}

// Where the scratch file was made; it has no name any more, but /proc remembers the one it had.
std::filesystem::path folder_of(const ScratchFile& file) {
  return std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file.direct())).parent_path();
}

}  // namespace

SampleFiles::SampleFiles(const ScratchFile& beside)
    : path_((folder_of(beside) / "fathom-samples-XXXXXX").string()) {
  if (!mkdtemp(path_.data())) system_failed("mkdtemp", errno, __FILE__, __LINE__);
  folder_ = static_cast<int>(FATHOM_SYSTEM(open(path_.c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC)));
}

SampleFiles::~SampleFiles() {
  close(folder_);
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void SampleFiles::rewrite(const int32_t* words, int64_t samples) const {
  for (int64_t s = 0; s < samples; ++s) {
    const Descriptor file(open_sample(folder_, s, O_WRONLY | O_CREAT));
    const auto* from = reinterpret_cast<const char*>(words + s * kWords);
    for (int64_t done = 0; done < kSample;)
      done += FATHOM_SYSTEM(pwrite(file.fd, from + done, static_cast<size_t>(kSample - done), done));
  }
  FATHOM_SYSTEM(syncfs(folder_));  // once, not once a file
  for (int64_t s = 0; s < samples; ++s) {
    const Descriptor file(open_sample(folder_, s, O_RDONLY));
    (void)posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED);  // direct reads look there first
  }
}

void SampleFiles::read(void* to, int64_t s) const {
  const Descriptor file(open_sample(folder_, s, O_RDONLY | O_DIRECT));
  for (int64_t done = 0; done < kSample;) {
    const ssize_t got = FATHOM_SYSTEM(
        pread(file.fd, static_cast<char*>(to) + done, static_cast<size_t>(kSample - done), done));
    FATHOM_EXPECT(got > 0, "a sample's file is shorter than a sample");
    done += got;
  }
}

}  // namespace fathom::lab::shard_packing
