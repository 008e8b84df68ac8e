// out(b) = sum of the words of block b                 a file in order, `read` bytes at a time
//
// bytes   4096 a block from the device
// limit   sequential read rate of the disk; each read pays the device's latency
// idea    O_DIRECT: no copy through the page cache and no eviction, but nothing is read ahead either, so
//         that the size of a read is the size of a request to the device
#include "read_size.h"

namespace fathom::lab::read_size {

void direct(const BlockScan& p, Context&) { scan(p, *p.file); }

}  // namespace fathom::lab::read_size
