// x += W(l) norm(x), for all layers l
//
// bytes   2 L H^2    the weights, once. H = 2048: 201 MB; H = 768: 28 MB, which L2 holds
// flops   2 L H^2
// limit   memory bandwidth: 46 us at 4.4 TB/s for H = 2048
// idea    none yet: 48 launches into a stream. Each kernel begins when the one before it has ended and its
//         writes are done, and the host needs 2 to 3 us for each launch
#include "chain.cuh"

namespace fathom::lab::dependent_launch {

void launched(const Chain& p, StreamRef stream) { launch_chain<false>(p, stream); }

}  // namespace fathom::lab::dependent_launch
