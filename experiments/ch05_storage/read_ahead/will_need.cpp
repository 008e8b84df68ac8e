// out(b) = sum of the words of block b                 a file in order, through the page cache
//
// bytes   4096 a block from the device to the page cache, and once more from there to the buffer
// limit   sequential read rate of the disk
// idea    all of the file is asked for at once, and the reads find what has come
#include "read_ahead.h"

namespace fathom::lab::read_ahead {

void will_need(const BlockScan& p, Context&) {
  p.buffered->drop();
  p.buffered->advise(POSIX_FADV_WILLNEED);
  scan(p, *p.buffered);
}

}  // namespace fathom::lab::read_ahead
