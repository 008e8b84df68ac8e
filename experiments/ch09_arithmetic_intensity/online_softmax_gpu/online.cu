// out = softmax of each row                  R x C, bf16, computed in fp32
//
// bytes   4 R C    and 4 R C move, if a row stays in L1 or L2 for the second walk
// flops   9 R C    every exponential twice
// limit   DRAM bandwidth
// idea    one walk finds the maximum and the sum together. Each thread has a maximum of its own, and corrects
//         its sum when a vector of 8 brings a larger one, which after the first few is rare
#include "online.cuh"

#include "softmax.h"

namespace fathom::lab::online_softmax_gpu {

void online(const Softmax& p, StreamRef stream) { softmax_in_two_walks(p.in, p.out, stream); }

}  // namespace fathom::lab::online_softmax_gpu
