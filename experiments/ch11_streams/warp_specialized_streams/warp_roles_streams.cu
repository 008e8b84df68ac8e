// out = in / sqrt(mean in^2 + epsilon) of each row        batches of few rows, a launch for each, fp32
//
// bytes   8 a number: read once, written once
// flops   3 a number
// limit   DRAM bandwidth. H200: 16 batches of 128 rows of 16384 are 268 MB, 67 us at 3.98 TB/s. A batch
//         alone is 32 CTAs, a quarter of the GPU
// idea    both: roles, and four streams of high priority
#include <memory>

#include "experiments/ch11_streams/side_streams.h"
#include "warp_roles.cuh"

namespace fathom::lab::warp_specialized_streams {

Call warp_roles_streams(const Batches&, StreamRef) {
  return [streams = std::make_shared<const SideStreams>(kStreams, SideStreams::Priority::high)](
             const Batches& p, StreamRef stream) {
    streams->fork(stream);
    for (int64_t b = 0; b < p.batches(); ++b)
      launch_batch<warp_roles_kernel>(p, b, kRolesThreads, (*streams)[b % kStreams]);
    streams->join(stream);
  };
}

}  // namespace fathom::lab::warp_specialized_streams
