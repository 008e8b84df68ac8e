// The problem is experiments/ch05_storage/block_scan.h; the variants differ in the way that the bytes take.
#pragma once

#include "experiments/ch05_storage/block_scan.h"

namespace fathom::lab::read_size {

void buffered(const BlockScan& p, Context& context);
void direct(const BlockScan& p, Context& context);

}  // namespace fathom::lab::read_size
