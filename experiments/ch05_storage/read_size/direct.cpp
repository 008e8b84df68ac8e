// out(b) = sum of the words of block b                 a file in order, `read` bytes at a time
//
// bytes   4096 a block from the device
// limit   sequential read rate of the disk; each read pays the device's latency
// idea    O_DIRECT: no copy through the page cache and no eviction, but nothing is read ahead either, so
//         that the size of a read is the size of a request to the device
#include "scan.h"

namespace fathom::lab::read_size {

void direct(const Scan& p, Context&) {
  uint8_t* buffer   = aligned(p.buffer);
  const int64_t end = p.contents.bytes();
  for (int64_t at = 0; at < end; at += p.read) {
    const int64_t bytes = std::min(p.read, end - at);
    p.file->read(buffer, bytes, at);
    sum_blocks(p, buffer, bytes, at);
  }
}

}  // namespace fathom::lab::read_size
