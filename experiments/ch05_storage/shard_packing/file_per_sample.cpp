// out(s) = sum of the words of sample s                 samples of 16 KiB, each in a file
//
// bytes   16384 a sample from the device
// limit   sequential read rate of the disk; each sample pays a look-up of its name, open and close, and the
//         latency of a read
// idea    baseline: the data set as it was collected
#include "samples.h"

namespace fathom::lab::shard_packing {

void file_per_sample(const Samples& p, Context&) {
  uint8_t* buffer = aligned(p.buffer);
  for (int64_t s = 0; s < p.out.extent(0); ++s) {
    p.files->read(buffer, s);
    p.out(s) = sum_of_words(buffer, kSample);
  }
}

}  // namespace fathom::lab::shard_packing
