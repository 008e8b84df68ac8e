// the flood: leaky integrator of n numbers, four times; the chain: of m numbers, 64 times one after the other
//
// flops   2 a number and step
// limit   fp32 multiply-adds of the flood. H200: 4 x 2^23 numbers of 512 steps are 34 GFLOP, 0.57 ms at 60
//         TFLOP/s; the chain has no work to speak of, but 64 kernels take some 0.2 ms in a row
// idea    the chain's stream has a high priority: its CTAs take the next places that become free, before
//         those of the flood that wait. Running CTAs are not interrupted
#include "two_streams.cuh"

namespace fathom::lab::stream_priorities {

Call high_priority(const Flood&, StreamRef) { return two_streams(SideStreams::Priority::high); }

}  // namespace fathom::lab::stream_priorities
