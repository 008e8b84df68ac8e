// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, cache in FP8
//
// bytes   1088 a position: a byte for each number, and a byte of scale for each 16 numbers
// flops   16384 a position, on the tensor cores, and some 2 instructions to convert a number to bf16
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 285 MB, 63 us at 4.5 TB/s
// idea    the engine's op: codes become bf16 in registers between shared memory and the tensor cores
//         (kernels/attention/kv_fragments.cuh)
#include "kernels/attention/decode_attention.h"
#include "pages.h"

namespace fathom::lab::kv_compression {

void fp8_pages(const Pages& p, StreamRef stream) {
  kernels::decode_attention(p.q, p.in_fp8(), p.sinks, kScale, p.window, p.rows(), p.context, p.out, stream);
}

}  // namespace fathom::lab::kv_compression
