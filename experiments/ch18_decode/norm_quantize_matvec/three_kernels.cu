// out = (s e4m3(rmsnorm(x) / s)) w^T      T <= 8 rows, L layers, weights in e4m3
//
// bytes   N K a layer, from DRAM; y and codes, some KB, from L2
// flops   2 T N K, on the tensor cores
// limit   DRAM bandwidth. H200: 8 layers of 5120 x 2880 are 118 MB, 26 us at 4.55 TB/s
// idea    baseline: RMSNorm to bf16, the op that quantises rows, and the product, a launch each
#include "cuda/bf16_pack.cuh"
#include "kernels/quant/quantize.h"
#include "matvec.cuh"

namespace fathom::lab::norm_quantize_matvec {
namespace {

// A CTA for each row; the row waits in L1 between two walks.
__global__ void __launch_bounds__(kThreads) rmsnorm_kernel(const NormInput in, uint4* y) {
  __shared__ float of_warp[kWarps];
  const int vectors     = in.inputs / 8;
  const uint4* const x  = reinterpret_cast<const uint4*>(in.x) + int64_t{blockIdx.x} * vectors;
  const uint4* const by = reinterpret_cast<const uint4*>(in.gamma);
  float sum             = 0;
#pragma unroll 4
  for (int v = threadIdx.x; v < vectors; v += kThreads) sum += squares(x[v]);
  sum = warp_reduce_sum(sum);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();  // all warps have written before any reads
  sum = 0;
#pragma unroll
  for (const float of : of_warp) sum += of;
  const float root = rsqrtf(sum / static_cast<float>(in.inputs) + kEpsilon);
#pragma unroll 4
  for (int v = threadIdx.x; v < vectors; v += kThreads) {
    const Products p(x[v], __ldg(by + v));
    y[int64_t{blockIdx.x} * vectors + v] = {
        pack_bf16x2(p.at[0] * root, p.at[1] * root), pack_bf16x2(p.at[2] * root, p.at[3] * root),
        pack_bf16x2(p.at[4] * root, p.at[5] * root), pack_bf16x2(p.at[6] * root, p.at[7] * root)};
  }
}

}  // namespace

void three_kernels(const Layers& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  for (int64_t l = 0; l < p.x.extent(0); ++l) {
    rmsnorm_kernel<<<static_cast<unsigned>(p.x.extent(1)), kThreads, 0, stream>>>(
        norm_input(p, l), reinterpret_cast<uint4*>(p.y.data()));
    FATHOM_LAUNCHED();
    kernels::quantize(p.y, kernels::RowScaled<fp8_e4m3>{p.codes, p.scales}, stream);
    launch_matvec<true>(p, l, quantized(p), stream);
  }
}

}  // namespace fathom::lab::norm_quantize_matvec
