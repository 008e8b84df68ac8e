// out(s) = sum of the words of sample s                 samples of 16 KiB in one shard
//
// bytes   16384 a sample from the device, one read each
// limit   sequential read rate of the disk; each sample pays the latency of a read
// idea    one file that stays open: what the names alone cost
#include "samples.h"

namespace fathom::lab::shard_packing {

void shard_by_sample(const Samples& p, Context&) {
  uint8_t* buffer = aligned(p.buffer);
  for (int64_t s = 0; s < p.out.extent(0); ++s) {
    p.shard->read(buffer, kSample, s * kSample);
    p.out(s) = sum_of_words(buffer, kSample);
  }
}

}  // namespace fathom::lab::shard_packing
