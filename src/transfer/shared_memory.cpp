#include "transfer/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace fathom::transfer {
namespace {

std::byte* map_shared(int file, size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

}  // namespace

SharedMemory::SharedMemory(int file, std::byte* data, size_t size, std::string path)
    : file_(file), data_(data), size_(size), path_(std::move(path)) {}

SharedMemory::SharedMemory(size_t bytes) : size_(bytes) {
  file_ = memfd_create("fathom-landing", MFD_CLOEXEC);
  if (file_ >= 0 && ftruncate(file_, static_cast<off_t>(bytes)) == 0) data_ = map_shared(file_, bytes);
  if (!data_) {
    const int error = errno;
    if (file_ >= 0) close(file_);
    throw std::system_error(error, std::generic_category(),
                            fmt::format("{} bytes of shared memory cannot be had", bytes));
  }
  path_ = fmt::format("/proc/{}/fd/{}", getpid(), file_);
}

Result<SharedMemory> SharedMemory::open(const std::string& path) {
  const auto failed = [&](int file) {
    const int error = errno;
    if (file >= 0) close(file);
    return Error{
        fmt::format("the shared memory {} cannot be mapped ({}): is its owner a process of this user "
                    "on this host? --transfer tcp does without",
                    path, std::strerror(error))};
  };
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat about {};
  if (file < 0 || fstat(file, &about) != 0 || about.st_size == 0) return failed(file);
  const auto bytes      = static_cast<size_t>(about.st_size);
  std::byte* const data = map_shared(file, bytes);
  if (!data) return failed(file);
  return SharedMemory(file, data, bytes, path);
}

bool SharedMemory::is_at_path() const {
  struct stat here {
  }, there{};
  return fstat(file_, &here) == 0 && stat(path_.c_str(), &there) == 0 && here.st_dev == there.st_dev &&
         here.st_ino == there.st_ino;
}

Result<std::shared_ptr<const SharedMemory>> SharedMemory::open_shared(const std::string& path) {
  static std::mutex mutex;
  static std::vector<std::shared_ptr<const SharedMemory>> kept;
  const std::lock_guard lock(mutex);
  std::erase_if(kept, [](const auto& memory) { return !memory->is_at_path(); });
  for (const auto& memory : kept)
    if (memory->path_ == path) return memory;
  auto opened = open(path);
  if (!opened) return opened.error();
  kept.push_back(std::make_shared<const SharedMemory>(std::move(opened).value()));
  return kept.back();
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(other.size_),
      path_(std::move(other.path_)) {}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, size_);
  if (file_ >= 0) close(file_);
}

}  // namespace fathom::transfer
