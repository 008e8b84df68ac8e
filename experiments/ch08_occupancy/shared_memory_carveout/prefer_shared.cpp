// out(d, i) = sum over k < 8 of table(id(i, k), d)        embedding_bag.cu has bytes, flops and limit
//
// idea    the preference said: all 228 KiB as shared memory, for six blocks
#include "embedding_bag.h"

namespace fathom::lab::shared_memory_carveout {

void prefer_shared(const EmbeddingBag& p, StreamRef stream) {
  launch<Shared::static_tile, kAllShared>(p, stream);
}

}  // namespace fathom::lab::shared_memory_carveout
