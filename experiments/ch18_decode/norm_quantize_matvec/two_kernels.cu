// out = (s e4m3(rmsnorm(x) / s)) w^T      T <= 8 rows, L layers, weights in e4m3
//
// bytes   N K a layer, from DRAM; codes, some KB, from L2
// flops   2 T N K, on the tensor cores
// limit   DRAM bandwidth. H200: 8 layers of 5120 x 2880 are 118 MB, 26 us at 4.55 TB/s
// idea    norm and quantisation are one kernel: y never leaves registers, and one launch is gone
#include "matvec.cuh"

namespace fathom::lab::norm_quantize_matvec {
namespace {

// A CTA for each row.
__global__ void __launch_bounds__(kThreads) norm_quantize_kernel(NormInput in, uint2* codes, float* scales) {
  in.x += int64_t{blockIdx.x} * in.inputs;
  in.rows           = 1;
  const int vectors = in.inputs / 8;
  uint2* const of   = codes + int64_t{blockIdx.x} * vectors;
  const float scale =
      norm_quantize<1>(in, vectors, [&](int, int vector, uint2 eight) { of[vector] = eight; });
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

}  // namespace

void two_kernels(const Layers& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  for (int64_t l = 0; l < p.x.extent(0); ++l) {
    norm_quantize_kernel<<<static_cast<unsigned>(p.x.extent(1)), kThreads, 0, stream>>>(
        norm_input(p, l), reinterpret_cast<uint2*>(p.codes.data()), p.scales.data());
    FATHOM_LAUNCHED();
    launch_matvec<true>(p, l, quantized(p), stream);
  }
}

}  // namespace fathom::lab::norm_quantize_matvec
