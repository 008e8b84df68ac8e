// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, bf16
//
// bytes   2048 a position, each key and value read once
// flops   16384 a position, on the tensor cores
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 537 MB, 119 us at 4.5 TB/s
// idea    the engine's op, kernels/attention/decode_attention.cuh: a group's 8 heads are the 8 columns of
//         mma.sync, which takes the multiply-adds from the CUDA cores. TMA loads pages into shared memory.
//         The pieces of a row are the CTAs of a cluster, merged through distributed shared memory without a
//         second kernel
#include "attention.h"
#include "kernels/attention/decode_attention.h"

namespace fathom::lab::decode_attention_gpu {

void tensor_cores(const DecodeAttention& p, StreamRef stream) {
  kernels::decode_attention(p.q, p.kv(), p.sinks, kScale, p.window, p.rows(), p.context, p.out, stream);
}

}  // namespace fathom::lab::decode_attention_gpu
