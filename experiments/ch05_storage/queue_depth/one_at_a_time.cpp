// out(r) = sum of the words of record r                 records of a file, read in random order
//
// bytes   `record` a record from the device
// limit   reads a second of the device, and its bytes a second for large records
// idea    baseline: pread, wait, add up, next, whatever the depth of the point
#include "queue_depth.h"

namespace fathom::lab::queue_depth {

void one_at_a_time(const Records& p, Context&) {
  uint8_t* buffer = aligned(p.buffer);
  for (int64_t k = 0; k < p.order.extent(0); ++k) {
    const int64_t record = p.order(k);
    p.file->read(buffer, p.bytes, record * p.bytes);
    p.out(record) = sum_of_words(buffer, p.bytes);
  }
}

}  // namespace fathom::lab::queue_depth
