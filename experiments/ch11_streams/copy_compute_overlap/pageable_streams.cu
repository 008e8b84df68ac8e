// out = leaky integrator of in        n numbers from the host and back, fp32
//
// link    4 n to the device and 4 n back, which the link carries at the same time
// flops   2 n steps
// limit   the link, one way. H200: PCIe, some 55 GB/s; 128 MiB take 2.44 ms, the 1792 steps on them 2.1 ms
// idea    the trap: the same four streams, but the inputs are in pageable memory. The call that copies
//         them is asynchronous by name; the driver stages them on the calling thread before it returns
#include "round_robin.cuh"

namespace fathom::lab::copy_compute_overlap {

Call pageable_streams(const Offload&, StreamRef) { return round_robin(&Offload::pageable_in); }

}  // namespace fathom::lab::copy_compute_overlap
