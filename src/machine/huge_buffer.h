// Memory for measuring: anonymous, aligned to 2 MiB, in huge pages where the kernel agrees, so that address
// translation does not set the ceiling.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fathom::machine {

class HugeBuffer {
 public:
  // Untouched: the thread that writes first decides the NUMA node.
  explicit HugeBuffer(int64_t bytes);
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Whether at least nine tenths of the touched buffer lie in huge pages.
  bool huge() const;

 private:
  void* mapping_         = nullptr;
  int64_t mapping_bytes_ = 0;
  std::byte* data_       = nullptr;
  int64_t bytes_         = 0;
};

}  // namespace fathom::machine
