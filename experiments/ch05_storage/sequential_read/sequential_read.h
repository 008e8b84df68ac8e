// The problem is experiments/ch05_storage/block_sums.h; the variants differ in the order and size of their
// reads.
#pragma once

#include "experiments/ch05_storage/block_sums.h"

namespace fathom::lab::sequential_read {

void random_4k(const BlockSums& p, Context& context);
void ordered_4k(const BlockSums& p, Context& context);
void ordered_1m(const BlockSums& p, Context& context);

}  // namespace fathom::lab::sequential_read
