// out(b) = sum of the words of block b                 blocks of 4 KiB in a file
//
// bytes   4096 a block from the device, one read each, one at a time
// limit   sequential read rate of the disk; as many reads as random_4k
// idea    blocks are read in file order: no seek on a rotating disk, perhaps read-ahead in the device
#include "sequential_read.h"

namespace fathom::lab::sequential_read {

void ordered_4k(const BlockSums& p, Context&) {
  uint8_t* buffer = aligned(p.buffer);
  for (int64_t block = 0; block < p.order.extent(0); ++block) {
    p.file->read(buffer, BlockSums::kBlock, block * BlockSums::kBlock);
    p.out(block) = sum_of_block(buffer);
  }
}

}  // namespace fathom::lab::sequential_read
