// out = leaky integrator of in        n numbers from the host and back, fp32
//
// link    4 n to the device and 4 n back, which the link carries at the same time
// flops   2 n steps
// limit   the link, one way. H200: PCIe, some 55 GB/s; 128 MiB take 2.44 ms, the 1792 steps on them 2.1 ms
// idea    chunks of 4 MiB in four streams in turn: while one is computed, the next is copied in and the
//         one before is copied out. The GPU has a copy engine for each direction
#include "round_robin.cuh"

namespace fathom::lab::copy_compute_overlap {

Call stream_per_chunk(const Offload&, StreamRef) { return round_robin(&Offload::pinned_in); }

}  // namespace fathom::lab::copy_compute_overlap
