// out = (s e4m3(rmsnorm(x) / s)) w^T      T <= 8 rows, L layers, weights in e4m3
//
// bytes   N K a layer, from DRAM; x and gamma for each CTA, from L2
// flops   2 T N K, on the tensor cores; and 12 T K for the norm, in each of N / 16 CTAs
// limit   DRAM bandwidth. H200: 8 layers of 5120 x 2880 are 118 MB, 26 us at 4.55 TB/s
// idea    a layer's CTAs start as soon as those of the layer before leave places, ask for their weights, and
// wait
//         for that layer's end only then (programmatic dependent launch)
#include "matvec.cuh"

namespace fathom::lab::norm_quantize_matvec {

void dependent_launch(const Layers& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  // The first one waits: what ran before may have written the weights.
  for (int64_t l = 0; l < p.x.extent(0); ++l) launch_matvec<true>(p, l, norm_input(p, l), stream, l > 0);
}

}  // namespace fathom::lab::norm_quantize_matvec
