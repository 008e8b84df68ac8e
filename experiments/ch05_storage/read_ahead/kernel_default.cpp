// out(b) = sum of the words of block b                 a file in order, through the page cache
//
// bytes   4096 a block from the device to the page cache, and once more from there to the buffer
// limit   sequential read rate of the disk
// idea    baseline: no advice. The kernel sees a sequential reader and reads ahead, up to the device's
// read_ahead_kb
#include "read_ahead.h"

namespace fathom::lab::read_ahead {

void kernel_default(const BlockScan& p, Context&) {
  p.buffered->drop();
  p.buffered->advise(POSIX_FADV_NORMAL);
  scan(p, *p.buffered);
}

}  // namespace fathom::lab::read_ahead
