// out = in / sqrt(mean in^2 + epsilon) of each row        batches of few rows, a launch for each, fp32
//
// bytes   8 a number: read once, written once
// flops   3 a number
// limit   DRAM bandwidth. H200: 16 batches of 128 rows of 16384 are 268 MB, 67 us at 3.98 TB/s. A batch
//         alone is 32 CTAs, a quarter of the GPU
// idea    roles for the warps, still in one stream: inside a CTA loading, computing and storing wait for
//         no warp that has no part in them. Measured, that gains nothing: two_pipelines.cuh overlaps them too
#include "warp_roles.cuh"

namespace fathom::lab::warp_specialized_streams {

void warp_roles(const Batches& p, StreamRef stream) {
  for (int64_t b = 0; b < p.batches(); ++b) launch_batch<warp_roles_kernel>(p, b, kRolesThreads, stream);
}

}  // namespace fathom::lab::warp_specialized_streams
