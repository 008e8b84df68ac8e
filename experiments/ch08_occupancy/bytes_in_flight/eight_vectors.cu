// out(i) = x(i) + y(i)                       n numbers, bf16
//
// bytes   6 n      4 n read + 2 n written
// flops   n
// limit   DRAM bandwidth. H200: n = 2^28 moves 1.61 GB, 0.40 ms at 4 TB/s
// idea    eight of each, 256 bytes in flight for each thread, in 64 registers
#include "residual.cuh"

namespace fathom::lab::bytes_in_flight {

void eight_vectors(const Residual& p, StreamRef stream) { launch<8>(p, stream); }

}  // namespace fathom::lab::bytes_in_flight
