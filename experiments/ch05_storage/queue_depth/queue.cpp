// out(r) = sum of the words of record r                 records of a file, read in random order
//
// bytes   `record` a record from the device
// limit   reads a second of the device, and its bytes a second for large records
// idea    an io_uring with `depth` reads in flight: each completion starts the next. More depth helps until
//         the device has as many reads as it can work on; from there on reads only wait longer
#include <algorithm>
#include <memory>
#include <vector>

#include "experiments/ch05_storage/io_uring/uring.h"
#include "queue_depth.h"

namespace fathom::lab::queue_depth {
namespace {

void read_all(const Records& p, io_uring::ReadRing& ring, std::vector<int64_t>& record_in) {
  uint8_t* buffers      = aligned(p.buffer);
  const int64_t records = p.order.extent(0);
  int64_t next = 0, pending = 0;
  int error        = 0;
  const auto start = [&](uint64_t slot) {
    const int64_t record = record_in[slot] = p.order(next++);
    ring.queue(p.file->direct(), buffers + static_cast<int64_t>(slot) * p.bytes,
               static_cast<uint32_t>(p.bytes), static_cast<uint64_t>(record * p.bytes), slot);
    ++pending;
  };
  for (int64_t slot = 0; slot < std::min(p.depth, records); ++slot) start(static_cast<uint64_t>(slot));
  while (pending > 0)
    ring.wait([&](uint64_t slot, int32_t result) {
      --pending;
      // A short read would be an error of the device: records are whole and aligned.
      if (result != p.bytes) error = result < 0 ? -result : EIO;
      if (error != 0) return;  // queue nothing new; reads in flight must end before their buffers are freed
      p.out(record_in[slot]) = sum_of_words(buffers + static_cast<int64_t>(slot) * p.bytes, p.bytes);
      if (next < records) start(slot);
    });
  if (error != 0) system_failed("io_uring read", error, __FILE__, __LINE__);
}

}  // namespace

Launch<Records> prepare_queue(const Records& made_for, Context&) {
  return [ring      = std::make_shared<io_uring::ReadRing>(static_cast<unsigned>(made_for.depth)),
          record_in = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(made_for.depth))](
             const Records& p, Context&) { read_all(p, *ring, *record_in); };
}

}  // namespace fathom::lab::queue_depth
