// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, cache in bf16
//
// bytes   2048 a position, each key and value read once
// flops   16384 a position, on the tensor cores
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 537 MB, 119 us at 4.5 TB/s
// idea    none yet: the engine's op, kernels/attention/decode_attention.cuh
#include "kernels/attention/decode_attention.h"
#include "pages.h"

namespace fathom::lab::fp8_kv {

void bf16_pages(const Pages& p, StreamRef stream) {
  kernels::decode_attention(p.q, p.in_bf16(), p.sinks, kScale, p.window, p.rows(), p.context, p.out, stream);
}

}  // namespace fathom::lab::fp8_kv
