// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, bf16
//
// bytes   2048 a position, each key and value read once
// flops   16384 a position, on the tensor cores
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 537 MB, 119 us at 4.5 TB/s
// idea    the engine's op, kernels/paged_attention_few.cu: a group's 8 heads are the 8 columns of
//         mma.sync, and the multiply-adds all but vanish. The copy engine brings pages into shared memory;
//         the pieces of a row are a cluster, merged in shared memory without a second kernel
#include "attention.h"
#include "kernels/paged_attention.h"

namespace fathom::lab::decode_attention_gpu {

void tensor_cores(const DecodeAttention& p, StreamRef stream) {
  kernels::attend_few(p.q, p.kv(), p.sinks, kScale, p.window, p.rows(), p.context, p.out, stream);
}

}  // namespace fathom::lab::decode_attention_gpu
