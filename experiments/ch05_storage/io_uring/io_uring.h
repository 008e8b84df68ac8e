// The problem is experiments/ch05_storage/block_sums.h, read in the order of the keys; the variants differ in
// how many reads are in flight at a time.
#pragma once

#include "experiments/ch05_storage/block_sums.h"

namespace fathom::lab::io_uring {

void blocking(const BlockSums& p, Context& context);
Launch<BlockSums> prepare_queue_depth_32(const BlockSums& p, Context& context);

}  // namespace fathom::lab::io_uring
