// out(b) = sum of the words of block b                 a file in order, `read` bytes at a time
//
// bytes   4096 a block from the device to the page cache, and once more from there to the buffer
// limit   sequential read rate of the disk
// idea    baseline: pread. The kernel reads ahead, so that a small read finds its bytes in the page cache.
//         The file is dropped from the cache first, inside the call: data that is larger than memory pays
//         for eviction too
#include "read_size.h"

namespace fathom::lab::read_size {

void buffered(const BlockScan& p, Context&) {
  p.buffered->drop();
  scan(p, *p.buffered);
}

}  // namespace fathom::lab::read_size
