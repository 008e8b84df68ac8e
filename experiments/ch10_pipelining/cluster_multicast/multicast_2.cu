// out(i) = max over j of q(i) k(j)        128 dimensions, bf16, fp32 sums
//
// bytes   256 a query and 256 a key from DRAM, once; from L2 the keys once for each CTA or cluster
// flops   256 for each pair of a query and a key
// limit   the tensor cores. H200: 131072 queries and 4096 keys are 137 GFLOP, 0.14 ms at 989 TFLOP/s
// idea    a cluster of two CTAs: each loads one half of a tile and multicasts it to both. L2 sends half as
// much
#include "similarity.cuh"

namespace fathom::lab::cluster_multicast {

void multicast_2(const Similarity& p, StreamRef stream) { launch_similarity<1, 2>(p, stream); }

}  // namespace fathom::lab::cluster_multicast
