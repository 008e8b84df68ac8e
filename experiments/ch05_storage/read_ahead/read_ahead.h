// The problem is experiments/ch05_storage/block_scan.h, through the page cache; each call first drops the
// file from it. The variants differ in what they tell the kernel before they read.
#pragma once

#include "experiments/ch05_storage/block_scan.h"

namespace fathom::lab::read_ahead {

void kernel_default(const BlockScan& p, Context& context);
void off(const BlockScan& p, Context& context);
void sequential(const BlockScan& p, Context& context);
void will_need(const BlockScan& p, Context& context);

}  // namespace fathom::lab::read_ahead
