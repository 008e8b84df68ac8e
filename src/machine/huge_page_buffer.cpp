#include "machine/huge_page_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <sstream>
#include <utility>

#include "core/expect.h"
#include "machine/topology.h"

namespace fathom::machine {
namespace {

constexpr int64_t kHugePage = 2 << 20;

int64_t rounded_up(int64_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

}  // namespace

HugePageBuffer::HugePageBuffer(int64_t bytes) : mapping_bytes_(rounded_up(bytes) + kHugePage), bytes_(bytes) {
  FATHOM_EXPECT(bytes > 0, "a buffer for measuring needs at least a byte");
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) system_failed("mmap of a measuring buffer", errno, __FILE__, __LINE__);
  const auto start = reinterpret_cast<uintptr_t>(mapping_);
  data_            = reinterpret_cast<std::byte*>(rounded_up(static_cast<int64_t>(start)));
  (void)madvise(data_, rounded_up(bytes), MADV_HUGEPAGE);  // a hint; huge() checks the result
}

HugePageBuffer::~HugePageBuffer() {
  if (mapping_) munmap(mapping_, mapping_bytes_);
}

HugePageBuffer::HugePageBuffer(HugePageBuffer&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(other.mapping_bytes_),
      data_(other.data_),
      bytes_(other.bytes_) {}

bool HugePageBuffer::huge() const {
  const auto first = reinterpret_cast<uintptr_t>(data_), last = first + static_cast<uintptr_t>(bytes_);
  // The kernel may merge our mapping with a neighbour or split it: add up the overlaps.
  int64_t huge_bytes = 0;
  bool ours          = false;
  std::istringstream lines(read_text("/proc/self/smaps").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    unsigned long long begin = 0, end = 0, kilobytes = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2)
      ours = begin < last && end > first;
    else if (ours && std::sscanf(line.c_str(), "AnonHugePages: %llu kB", &kilobytes) == 1)
      huge_bytes += static_cast<int64_t>(kilobytes) * 1024;
  }
  return huge_bytes >= bytes_ / 10 * 9;
}

}  // namespace fathom::machine
