#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>

#include "core/expect.h"
#include "core/rng.h"
#include "core/thread_pool.h"
#include "machine/ceilings_measure.h"
#include "measure/clock.h"

namespace fathom::machine {
namespace {

constexpr int64_t kBlock = 1 << 20;  // bytes of one read
constexpr int kInFlight  = 4;
constexpr int kSegments  = 12;  // of the file; a trial reads one
// For each kind of read; a slow disk gets fewer trials, but at least kMinTrials.
constexpr double kTimeLimit_s = 2;
constexpr int kMinTrials      = 3;
constexpr long kTmpfsMagic    = 0x01021994;
constexpr long kRamfsMagic    = 0x858458f6;

class File {
 public:
  explicit File(int handle) : handle_(handle) {}
  ~File() {
    if (handle_ >= 0) close(handle_);
  }
  File(const File&)            = delete;
  File& operator=(const File&) = delete;
  int handle() const { return handle_; }

 private:
  int handle_;
};

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<std::byte, FreeMemory>;

Block aligned_block(int64_t bytes) {  // aligned for O_DIRECT
  Block block(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
  if (!block) system_failed("aligned_alloc of a disk block", ENOMEM, __FILE__, __LINE__);
  return block;
}

std::optional<std::string> unsuitable(const std::string& folder, int64_t bytes) {
  struct statfs system;
  if (statfs(folder.c_str(), &system) != 0) return fmt::format("{}: {}", folder, std::strerror(errno));
  if (system.f_type == kTmpfsMagic || system.f_type == kRamfsMagic)
    return fmt::format("{} is in memory: point XDG_CACHE_HOME at a disk", folder);
  if (static_cast<int64_t>(system.f_bavail) * system.f_bsize < 4 * bytes)
    return fmt::format("{} has less than {} MiB free", folder, 4 * bytes >> 20);
  return std::nullopt;
}

// An unlinked file, so that no crash leaves it behind.
int make_file(const std::string& folder, int64_t bytes) {
  std::string name = folder + "/disk-read-XXXXXX";
  const int handle = mkostemp(name.data(), O_CLOEXEC);
  if (handle < 0) return -1;
  unlink(name.c_str());
  const Block block = aligned_block(kBlock);
  for (int64_t at = 0; at < bytes; at += kBlock) {
    // Random numbers, which neither the file system nor the host can compress.
    fill_integers<int64_t>(reinterpret_cast<int64_t*>(block.get()), kBlock / 8, static_cast<uint64_t>(at),
                           INT64_MIN, INT64_MAX);
    if (pwrite(handle, block.get(), kBlock, at) != kBlock) {
      const int error = errno;
      close(handle);
      errno = error ? error : ENOSPC;
      return -1;
    }
  }
  fdatasync(handle);  // only clean pages can be dropped from the cache
  return handle;
}

void read_block(int handle, std::byte* into, int64_t at) {
  const ssize_t got = pread(handle, into, kBlock, at);
  if (got != kBlock) system_failed("pread of the disk test file", got < 0 ? errno : EIO, __FILE__, __LINE__);
}

DiskRate measure(DiskRead kind, int64_t bytes, int trials, const std::function<void()>& before,
                 const std::function<void(int64_t at)>& read_segment) {
  const int64_t segment = bytes / kSegments / kBlock * kBlock;
  std::vector<double> rates;
  double spent_s = 0;
  for (int trial = 0; trial < trials && (trial < kMinTrials || spent_s < kTimeLimit_s); ++trial) {
    before();
    const int64_t start = measure::now_ns(measure::Clock::wall);
    read_segment(trial % kSegments * segment);
    const double seconds = 1e-9 * static_cast<double>(measure::now_ns(measure::Clock::wall) - start);
    rates.push_back(static_cast<double>(segment) / seconds);
    spent_s += seconds;
  }
  return {.kind = kind, .bytes = bytes, .why_not = {}, .bytes_per_s = summarise(rates, Better::higher)};
}

}  // namespace

std::vector<DiskRate> measure_disk(const Effort& effort) {
  const int64_t bytes = effort.disk_bytes / (kSegments * kBlock) * (kSegments * kBlock);
  FATHOM_EXPECT(bytes > 0, fmt::format("the disk test needs a file of at least {} MiB", kSegments));
  const auto none = [&](const std::string& why) {
    std::vector<DiskRate> rates;
    for (const DiskRead kind : kDiskReads) rates.push_back({kind, bytes, why, {}});
    return rates;
  };
  std::error_code error;
  std::filesystem::create_directories(effort.folder, error);
  if (const auto why = unsuitable(effort.folder, bytes)) return none(*why);
  const File file(make_file(effort.folder, bytes));
  if (file.handle() < 0)
    return none(fmt::format("a test file in {} cannot be written: {}", effort.folder, std::strerror(errno)));

  const int64_t segment_blocks = bytes / kSegments / kBlock;
  const auto drop_cache        = [&] { posix_fadvise(file.handle(), 0, 0, POSIX_FADV_DONTNEED); };
  const auto read_in_order     = [&, block = std::shared_ptr(aligned_block(kBlock))](int64_t at) {
    for (int64_t b = 0; b < segment_blocks; ++b) read_block(file.handle(), block.get(), at + b * kBlock);
  };

  std::vector<DiskRate> rates;
  const std::string path = fmt::format("/proc/self/fd/{}", file.handle());
  const File direct(open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (direct.handle() < 0) {
    rates.push_back(
        {DiskRead::direct, bytes, fmt::format("O_DIRECT is refused here: {}", std::strerror(errno)), {}});
  } else {
    ThreadPool pool(kInFlight);
    std::vector<Block> blocks;
    for (int i = 0; i < kInFlight; ++i) blocks.push_back(aligned_block(kBlock));
    rates.push_back(measure(DiskRead::direct, bytes, effort.trials, drop_cache, [&](int64_t at) {
      pool.run([&](int worker) {
        for (int64_t b = worker; b < segment_blocks; b += kInFlight)
          read_block(direct.handle(), blocks[worker].get(), at + b * kBlock);
      });
    }));
  }
  rates.push_back(measure(DiskRead::buffered, bytes, effort.trials, drop_cache, read_in_order));
  for (int64_t at = 0; at < bytes; at += segment_blocks * kBlock) read_in_order(at);
  rates.push_back(measure(
      DiskRead::cached_pages, bytes, effort.trials, [] {}, read_in_order));
  return rates;
}

}  // namespace fathom::machine
