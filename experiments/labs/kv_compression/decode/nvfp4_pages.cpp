// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, cache in NVFP4
//
// bytes   576 a position: half a byte for each number, and a byte of scale for each 16 numbers
// flops   16384 a position, on the tensor cores, and some 2 instructions to convert a number to bf16
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 151 MB, 34 us at 4.5 TB/s; the integer units,
//         which convert, are as near
// idea    the same op: a unit of ldmatrix is four codes, which land in the lanes that need them
#include "kernels/attention/decode_attention.h"
#include "pages.h"

namespace fathom::lab::kv_compression {

void nvfp4_pages(const Pages& p, StreamRef stream) {
  kernels::decode_attention(p.q, p.in_nvfp4(), p.sinks, kScale, p.window, p.rows(), p.context, p.out, stream);
}

}  // namespace fathom::lab::kv_compression
