// out(m, t, n) = sum_k x(m, t, k) scale(m, n, k / G) (code(m, n, k) - zero(m, n, k / G))
//
// bytes   M N K / 2 of codes, 2.5 of each G weights' scale and zero point, once
// flops   2 M T N K, by the tensor cores
// limit   memory bandwidth. H200: 70 MB, 8 matrices of 4096 x 4096, are 15 us at 4.55 TB/s
// idea    the engine's op: codes packed as fragments of the tensor cores, so that three instructions turn two
//         of them into bf16, and a scale multiplies once a group, not once a weight
#include "kernels/quant/int4_gemv.h"
#include "projection.h"

namespace fathom::lab::int4_gemv_gpu {

void tensor_cores(const Projection& p, StreamRef stream) {
  kernels::int4_gemv(p.x, p.weights.packed(p.memory.data()), p.out, stream);
}

}  // namespace fathom::lab::int4_gemv_gpu
