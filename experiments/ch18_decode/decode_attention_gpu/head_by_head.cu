// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, bf16
//
// bytes   2048 a position, each key and value counted once; 16384 are read: each by 8 heads
// flops   16384 a position, on the CUDA cores
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 537 MB, 119 us at 4.5 TB/s
// idea    none yet: a CTA for each row and query head, which walks over the context with an online softmax.
//         The 8 heads of a group are neighbouring CTAs and run at the same time, so that DRAM is read once
//         and L2 eight times: 4.3 GB
#include "whole_rows.cuh"

namespace fathom::lab::decode_attention_gpu {

void head_by_head(const DecodeAttention& p, StreamRef stream) { whole_rows<1>(p, stream); }

}  // namespace fathom::lab::decode_attention_gpu
