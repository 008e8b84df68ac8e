// Memory for measurements: anonymous, aligned to 2 MiB, in transparent huge pages where the kernel provides
// them, so that TLB misses do not limit the ceilings.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fathom::machine {

class HugePageBuffer {
 public:
  // Not touched: the thread that writes first determines the NUMA node.
  explicit HugePageBuffer(int64_t bytes);
  ~HugePageBuffer();
  HugePageBuffer(HugePageBuffer&& other) noexcept;
  HugePageBuffer& operator=(HugePageBuffer&&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Whether huge pages hold at least nine tenths of the touched buffer.
  bool huge() const;

 private:
  void* mapping_         = nullptr;
  int64_t mapping_bytes_ = 0;
  std::byte* data_       = nullptr;
  int64_t bytes_         = 0;
};

}  // namespace fathom::machine
