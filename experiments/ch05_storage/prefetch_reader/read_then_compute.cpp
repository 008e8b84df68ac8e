// out(b) = fingerprint of block b                 a file in reads of 1 MiB
//
// bytes   4096 a block from the device
// limit   sequential read rate of the disk; this order adds the time of the fingerprints to it
// idea    baseline: read a chunk, compute, read the next. The disk idles during the computation, and the CPU
//         during the read
#include "fingerprints.h"

namespace fathom::lab::prefetch_reader {

void read_then_compute(const Fingerprints& p, Context&) {
  uint8_t* buffer = aligned(p.buffer);
  for (int64_t c = 0; c < chunks(p); ++c) {
    p.file->read(buffer, bytes_of_chunk(p, c), c * kChunk);
    fingerprint_chunk(p, c, buffer);
  }
}

}  // namespace fathom::lab::prefetch_reader
