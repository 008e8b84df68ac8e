// out(b) = sum of the words of block b                 a file in order, `read` bytes at a time
//
// bytes   4096 a block from the device to the page cache, and once more from there to the buffer
// limit   sequential read rate of the disk
// idea    baseline: pread. The kernel reads ahead, so that a small read finds its bytes in the page cache.
//         The file is dropped from the cache first, inside the call: data that is larger than memory pays
//         for eviction too
#include "scan.h"

namespace fathom::lab::read_size {

void buffered(const Scan& p, Context&) {
  p.buffered->drop();
  uint8_t* buffer   = aligned(p.buffer);
  const int64_t end = p.contents.bytes();
  for (int64_t at = 0; at < end; at += p.read) {
    const int64_t bytes = std::min(p.read, end - at);
    p.buffered->read(buffer, bytes, at);
    sum_blocks(p, buffer, bytes, at);
  }
}

}  // namespace fathom::lab::read_size
