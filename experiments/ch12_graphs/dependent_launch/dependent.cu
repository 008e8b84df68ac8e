// x += W(l) norm(x), for all layers l
//
// bytes   2 L H^2    the weights, once. H = 2048: 201 MB; H = 768: 28 MB, which L2 holds
// flops   2 L H^2
// limit   memory bandwidth: 46 us at 4.4 TB/s for H = 2048
// idea    programmatic dependent launch: once all CTAs of a kernel have issued the loads of their weights,
//         the next kernel starts beside them, issues its own loads, and waits for the kernel before it
#include "chain.cuh"

namespace fathom::lab::dependent_launch {

void dependent(const Chain& p, StreamRef stream) { launch_chain<true>(p, stream); }

}  // namespace fathom::lab::dependent_launch
