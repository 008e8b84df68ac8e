// out(d, i) = sum over k < 8 of table(id(i, k), d)        embedding_bag.cu has bytes, flops and limit
//
// idea    baseline: a tile of 33 KiB whose size the compiler knows, and no preference. Six blocks with theirs
//         fit into 228 KiB, and the driver is expected to make that room: L1 has 28 KiB left
#include "embedding_bag.h"

namespace fathom::lab::shared_memory_carveout {

void static_tile(const EmbeddingBag& p, StreamRef stream) {
  launch<Shared::static_tile, kDriversChoice>(p, stream);
}

}  // namespace fathom::lab::shared_memory_carveout
