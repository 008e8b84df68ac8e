// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, bf16
//
// bytes   2048 a position, each key and value read once
// flops   16384 a position, on the CUDA cores
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 537 MB, 119 us at 4.5 TB/s. The CUDA cores are a
//         close second: their multiply-adds take 64 us at the peak, and unpacking, shuffles and exponentials
//         as long again
// idea    a CTA for each row and key-value head (GQA): a key or value that a lane has read and unpacked
//         serves 8 query heads. 16 instructions to unpack serve 128 multiply-adds. Of the scores each lane
//         keeps one head's, so that an exponential is computed once and not by eight lanes
#include "whole_rows.cuh"

namespace fathom::lab::decode_attention_gpu {

void grouped(const DecodeAttention& p, StreamRef stream) { whole_rows<kGroup>(p, stream); }

}  // namespace fathom::lab::decode_attention_gpu
