// out(d, i) = sum over k < 8 of table(id(i, k), d)        embedding_bag.cu has bytes, flops and limit
//
// idea    no cache to hope for: a block copies the table beside its tile. That is up to 146 KiB, which only
//         dynamic shared memory can be, and only for a kernel that has asked
#include "embedding_bag.h"

namespace fathom::lab::shared_memory_carveout {

void table_in_shared(const EmbeddingBag& p, StreamRef stream) {
  launch<Shared::tile_and_table, kDriversChoice>(p, stream);
}

}  // namespace fathom::lab::shared_memory_carveout
