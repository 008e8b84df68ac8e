// out = (s e4m3(rmsnorm(x) / s)) w^T      T <= 8 rows, L layers, weights in e4m3
//
// bytes   N K a layer, from DRAM; x and gamma for each CTA, from L2
// flops   2 T N K, on the tensor cores; and 12 T K for the norm, in each of N / 16 CTAs
// limit   DRAM bandwidth. H200: 8 layers of 5120 x 2880 are 118 MB, 26 us at 4.55 TB/s
// idea    one kernel: every CTA normalises and quantises all rows for itself. That is N / 16 times the work
// of
//         one, and cheaper than a launch
#include "matvec.cuh"

namespace fathom::lab::norm_quantize_matvec {

void fused(const Layers& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  for (int64_t l = 0; l < p.x.extent(0); ++l) launch_matvec<false>(p, l, norm_input(p, l), stream);
}

}  // namespace fathom::lab::norm_quantize_matvec
