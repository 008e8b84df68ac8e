// out(i) = code(i) 2^(scale(i / 32) - 127)   n numbers, MXFP8 or MXFP4 to bf16
//
// bytes   3.03 n or 2.53 n: n or n / 2 of codes, n / 32 of scales, 2 n written
// flops   2 n
// limit   DRAM bandwidth. H200: n = 2^28 moves 0.81 or 0.68 GB, 0.20 or 0.17 ms at 4 TB/s
// idea    a thread loads 4 bytes of codes: a warp asks for 128 bytes, a whole line
#include "dequantize.cuh"

namespace fathom::lab::dequantize_vectorized {

void bytes_4(const Dequantize& p, StreamRef stream) { launch<uint32_t>(p, stream); }

}  // namespace fathom::lab::dequantize_vectorized
