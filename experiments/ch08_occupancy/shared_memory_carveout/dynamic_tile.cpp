// out(d, i) = sum over k < 8 of table(id(i, k), d)        embedding_bag.cu has bytes, flops and limit
//
// idea    the same tile, sized by the launch. To the hardware that is the same; the compiler does not know
//         how many blocks fit, expects eight, and allows itself fewer registers and fewer loads in flight
#include "embedding_bag.h"

namespace fathom::lab::shared_memory_carveout {

void dynamic_tile(const EmbeddingBag& p, StreamRef stream) {
  launch<Shared::dynamic_tile, kDriversChoice>(p, stream);
}

}  // namespace fathom::lab::shared_memory_carveout
