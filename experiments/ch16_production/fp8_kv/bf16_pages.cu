// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, keys, values
// bf16
//
// bytes   2048 a position, each key and value read once
// flops   16384 a position, on the tensor cores
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 537 MB, 119 us at 4.5 TB/s
// idea    the engine's op, kernels/paged_attention_few.cu
#include "kernels/paged_attention.h"
#include "pages.h"

namespace fathom::lab::fp8_kv {

void bf16_pages(const Pages& p, StreamRef stream) {
  kernels::attend_few(p.q, p.in_bf16(), p.sinks, kScale, p.window, p.rows(), p.context, p.out, stream);
}

}  // namespace fathom::lab::fp8_kv
