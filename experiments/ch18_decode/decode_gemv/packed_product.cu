// out(m, t, n) = sum_k x(m, t, k) w(m, n, k)      bf16, sums in fp32
//
// bytes   2 M N K of weights, once
// flops   2 M T N K, by the tensor cores
// limit   memory bandwidth. H200: 118 MB, 4 matrices of 5120 x 2880, are 26 us at 4.55 TB/s
// idea    the engine's op: weights are packed as the tensor cores' A fragments, so that they are loaded from
//         memory straight into registers. The CTAs of a cluster split K and add their sums through
//         distributed shared memory. A product's first weights are loaded while the one before it ends
#include "kernels/gemm/linear_gpu.h"
#include "projection.h"

namespace fathom::lab::decode_gemv {

void packed_product(const Projection& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  for (int64_t m = 0; m < p.matrices; ++m) {
    const kernels::PackedMatrix w{
        .tiles = &p.packed(m, 0), .rows = kernels::padded(p.outputs), .depth = p.inputs};
    kernels::linear({&p.x(m, 0, 0), {p.rows, p.inputs}}, w, {&p.out(m, 0, 0), {p.rows, p.outputs}}, stream);
  }
}

}  // namespace fathom::lab::decode_gemv
