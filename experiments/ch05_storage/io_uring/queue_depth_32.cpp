// out(b) = sum of the words of block b                 blocks of 4 KiB in a file, read in random order
//
// bytes   4096 a block from the device
// limit   reads a second of the device
// idea    32 reads are in flight at any time: whenever one completes, its block is added up and its buffer is
//         used for the next. One thread, one system call for a batch; the device works on many reads at once
#include <algorithm>
#include <memory>

#include "io_uring.h"
#include "uring.h"

namespace fathom::lab::io_uring {
namespace {

constexpr int64_t kDepth = 32;
static_assert(kDepth * BlockSums::kBlock <= BlockSums::kWorkspace);

void read_all(const BlockSums& p, ReadRing& ring) {
  uint8_t* buffers     = aligned(p.buffer);
  const int file       = p.file->direct();
  const int64_t blocks = p.order.extent(0);
  int64_t block_in[kDepth];  // which block each buffer waits for
  int64_t next = 0, pending = 0;
  int error        = 0;
  const auto start = [&](int64_t buffer) {
    const int64_t block = block_in[buffer] = p.order(next++);
    ring.queue(file, buffers + buffer * BlockSums::kBlock, BlockSums::kBlock,
               static_cast<uint64_t>(block * BlockSums::kBlock), static_cast<uint64_t>(buffer));
    ++pending;
  };
  for (int64_t buffer = 0; buffer < std::min(kDepth, blocks); ++buffer) start(buffer);
  while (pending > 0)
    ring.wait([&](uint64_t tag, int32_t result) {
      const auto buffer = static_cast<int64_t>(tag);
      --pending;
      // A short read would be an error of the device: blocks are whole and aligned.
      if (result != BlockSums::kBlock) error = result < 0 ? -result : EIO;
      if (error != 0) return;  // queue nothing new; reads in flight must end before their buffers are freed
      p.out(block_in[buffer]) = sum_of_block(buffers + buffer * BlockSums::kBlock);
      if (next < blocks) start(buffer);
    });
  if (error != 0) system_failed("io_uring read", error, __FILE__, __LINE__);
}

}  // namespace

Launch<BlockSums> prepare_queue_depth_32(const BlockSums&, Context&) {
  return [ring = std::make_shared<ReadRing>(kDepth)](const BlockSums& p, Context&) { read_all(p, *ring); };
}

}  // namespace fathom::lab::io_uring
