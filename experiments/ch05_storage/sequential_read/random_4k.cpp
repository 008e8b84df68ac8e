// out(b) = sum of the words of block b                 blocks of 4 KiB in a file
//
// bytes   4096 a block from the device, one read each, one at a time
// limit   sequential read rate of the disk; this order pays the device's latency for every block
// idea    baseline: blocks are read in the order of the keys
#include "sequential_read.h"

namespace fathom::lab::sequential_read {

void random_4k(const BlockSums& p, Context&) {
  uint8_t* buffer = aligned(p.buffer);
  for (int64_t k = 0; k < p.order.extent(0); ++k) {
    const int64_t block = p.order(k);
    p.file->read(buffer, BlockSums::kBlock, block * BlockSums::kBlock);
    p.out(block) = sum_of_block(buffer);
  }
}

}  // namespace fathom::lab::sequential_read
