// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, cache in K8V4
//
// bytes   832 a position: a byte for each number of a key, half a byte for each of a value, and scales
// flops   16384 a position, on the tensor cores, and some 2 instructions to convert a number to bf16
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 218 MB, 48 us at 4.5 TB/s
// idea    the same op: an error of a value moves a sum, one of a key a weight, so values lose bits first
#include "kernels/attention/decode_attention.h"
#include "pages.h"

namespace fathom::lab::kv_compression {

void k8v4_pages(const Pages& p, StreamRef stream) {
  kernels::decode_attention(p.q, p.in_k8v4(), p.sinks, kScale, p.window, p.rows(), p.context, p.out, stream);
}

}  // namespace fathom::lab::kv_compression
