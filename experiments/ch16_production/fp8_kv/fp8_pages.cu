// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, keys, values
// FP8
//
// bytes   1088 a position: a byte a number and one for each 16, their scale
// flops   16384 a position, on the tensor cores, and some 2 instructions a number to make bf16 of it
// limit   DRAM bandwidth. H200: 64 x 4096 positions are 285 MB, 63 us at 4.5 TB/s
// idea    the engine's op, kernels/paged_attention_few.cu: codes become bf16 between shared memory and the
//         tensor cores, in registers (kernels/kv_run.cuh), and nothing else of the kernel knows
#include "kernels/paged_attention.h"
#include "pages.h"

namespace fathom::lab::fp8_kv {

void fp8_pages(const Pages& p, StreamRef stream) {
  kernels::attend_few(p.q, p.in_fp8(), p.sinks, kScale, p.window, p.rows(), p.context, p.out, stream);
}

}  // namespace fathom::lab::fp8_kv
