// out(s) = sum of the words of sample s                 samples of 16 KiB in one shard
//
// bytes   16384 a sample from the device, 64 samples a read
// limit   sequential read rate of the disk
// idea    neighbours in a shard are read together: the latency is paid once for 64 samples
#include <algorithm>

#include "samples.h"

namespace fathom::lab::shard_packing {

void shard_by_mib(const Samples& p, Context&) {
  uint8_t* buffer       = aligned(p.buffer);
  const int64_t samples = p.out.extent(0);
  for (int64_t first = 0; first < samples; first += kPacked) {
    const int64_t count = std::min(kPacked, samples - first);
    p.shard->read(buffer, count * kSample, first * kSample);
    for (int64_t s = 0; s < count; ++s) p.out(first + s) = sum_of_words(buffer + s * kSample, kSample);
  }
}

}  // namespace fathom::lab::shard_packing
