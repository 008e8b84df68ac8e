// out(i) = max over j of q(i) k(j)        128 dimensions, bf16, fp32 sums
//
// bytes   256 a query and 256 a key from DRAM, once; from L2 the keys once for each CTA or cluster
// flops   256 for each pair of a query and a key
// limit   the tensor cores. H200: 131072 queries and 4096 keys are 137 GFLOP, 0.14 ms at 989 TFLOP/s
// idea    baseline: every CTA loads every tile of keys for itself. A tile of 32 KiB is enough for 64 x
//         128 scores, 512 cycles of the tensor cores, in which L2 would have to send 64 bytes a cycle
//         to each multiprocessor. An H200 does not mind: measured, they take 49 bytes a cycle
#include "similarity.cuh"

namespace fathom::lab::cluster_multicast {

void each_for_itself(const Similarity& p, StreamRef stream) { launch_similarity<1, 1>(p, stream); }

}  // namespace fathom::lab::cluster_multicast
