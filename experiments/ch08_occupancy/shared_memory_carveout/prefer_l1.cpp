// out(d, i) = sum over k < 8 of table(id(i, k), d)        embedding_bag.cu has bytes, flops and limit
//
// idea    132 KiB of shared memory hold three blocks; half the warps, and L1 has 124 KiB for the table
#include "embedding_bag.h"

namespace fathom::lab::shared_memory_carveout {

void prefer_l1(const EmbeddingBag& p, StreamRef stream) { launch<Shared::static_tile, k132KiB>(p, stream); }

}  // namespace fathom::lab::shared_memory_carveout
