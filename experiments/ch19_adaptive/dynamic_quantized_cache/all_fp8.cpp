// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64
//
// bytes   1088 a position, each key and value read once
// flops   16384 a position, on the tensor cores
// limit   DRAM bandwidth
// idea    the engine's op, kernels/attention/decode_attention.h, over a cache in one format
#include "cache.h"
#include "kernels/attention/decode_attention.h"

namespace fathom::lab::dynamic_quantized_cache {

void all_fp8(const MixedCache& p, StreamRef stream) {
  kernels::decode_attention(p.q, p.in_fp8(), p.sinks, kScale, p.window, p.rows(), p.context, p.out, stream);
}

}  // namespace fathom::lab::dynamic_quantized_cache
