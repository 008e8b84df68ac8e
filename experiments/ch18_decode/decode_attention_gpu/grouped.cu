// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, bf16
//
// bytes   2048 a position, and so many are read
// flops   16384 a position, on the CUDA cores
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 537 MB, 119 us at 4.5 TB/s. The CUDA cores are near:
//         their multiply-adds take 64 us at the peak, and unpacking, exchanges and exponentials as long again
// idea    a block for each row and key-value head: what a lane has read and unpacked meets 8 queries and 8
//         weights. 16 instructions to unpack serve 128 multiply-adds, and of the scores each lane keeps one
//         head's, so that an exponential is taken once and not by eight lanes
#include "whole_rows.cuh"

namespace fathom::lab::decode_attention_gpu {

void grouped(const DecodeAttention& p, StreamRef stream) { whole_rows<kGroup>(p, stream); }

}  // namespace fathom::lab::decode_attention_gpu
