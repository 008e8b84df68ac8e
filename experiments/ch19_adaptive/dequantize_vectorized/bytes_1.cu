// out(i) = code(i) 2^(scale(i / 32) - 127)   n numbers, MXFP8 or MXFP4 to bf16
//
// bytes   3.03 n or 2.53 n: n or n / 2 of codes, n / 32 of scales, 2 n written
// flops   2 n
// limit   DRAM bandwidth. H200: n = 2^28 moves 0.81 or 0.68 GB, 0.20 or 0.17 ms at 4 TB/s
// idea    baseline: a thread loads one byte. Neighbours are neighbours in memory, but a warp asks for 32
//         bytes
#include "dequantize.cuh"

namespace fathom::lab::dequantize_vectorized {

void bytes_1(const Dequantize& p, StreamRef stream) { launch<uint8_t>(p, stream); }

}  // namespace fathom::lab::dequantize_vectorized
