// out(b) = sum of the words of block b                 blocks of 4 KiB in a file, read in random order
//
// bytes   4096 a block from the device
// limit   reads a second of the device; one at a time uses one entry of its queues
// idea    baseline: pread, wait, add up, next
#include "io_uring.h"

namespace fathom::lab::io_uring {

void blocking(const BlockSums& p, Context&) {
  uint8_t* buffer = aligned(p.buffer);
  for (int64_t k = 0; k < p.order.extent(0); ++k) {
    const int64_t block = p.order(k);
    p.file->read(buffer, BlockSums::kBlock, block * BlockSums::kBlock);
    p.out(block) = sum_of_block(buffer);
  }
}

}  // namespace fathom::lab::io_uring
