// out(b) = sum of the words of block b                 blocks of 4 KiB in a file
//
// bytes   4096 a block from the device, 256 blocks a read
// limit   sequential read rate of the disk
// idea    order allows large reads: the latency is paid once a MiB, not 256 times
#include <algorithm>

#include "sequential_read.h"

namespace fathom::lab::sequential_read {

void ordered_1m(const BlockSums& p, Context&) {
  constexpr int64_t kBlocksPerRead = BlockSums::kWorkspace / BlockSums::kBlock;
  uint8_t* buffer                  = aligned(p.buffer);
  const int64_t blocks             = p.order.extent(0);
  for (int64_t first = 0; first < blocks; first += kBlocksPerRead) {
    const int64_t count = std::min(kBlocksPerRead, blocks - first);
    p.file->read(buffer, count * BlockSums::kBlock, first * BlockSums::kBlock);
    for (int64_t b = 0; b < count; ++b) p.out(first + b) = sum_of_block(buffer + b * BlockSums::kBlock);
  }
}

}  // namespace fathom::lab::sequential_read
