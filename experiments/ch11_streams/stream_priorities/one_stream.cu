// the flood: leaky integrator of n numbers, four times; the chain: of m numbers, 64 times one after the other
//
// flops   2 a number and step
// limit   fp32 multiply-adds of the flood. H200: 4 x 2^23 numbers of 512 steps are 34 GFLOP, 0.57 ms at 60
//         TFLOP/s; the chain has no work to speak of, but 64 kernels take some 0.2 ms in a row
// idea    baseline: the flood came first, so the chain waits for all of it, and then runs alone on a GPU
//         that is almost idle
#include "enqueue.cuh"

namespace fathom::lab::stream_priorities {

void one_stream(const Flood& p, StreamRef stream) {
  enqueue_flood(p, stream);
  enqueue_chain(p, stream);
}

}  // namespace fathom::lab::stream_priorities
