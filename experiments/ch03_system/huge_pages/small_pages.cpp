// out(0) = sum of the payload along `steps` random links                 records of 64 bytes
//
// bytes   8 steps useful, a line of 64 for each
// flops   0; `steps` dependent loads
// limit   load latency of the level that holds the array
// idea    baseline: memory as malloc gives it, 4 KiB pages. Far more pages than the TLB has entries, so
//         nearly every load first waits for a walk of the page tables (of two sets of them in a virtual
//         machine)
#include "huge_pages.h"

namespace fathom::lab::huge_pages {

void small_pages(const LongWalk& p, Context&) { walk(p, p.small); }

}  // namespace fathom::lab::huge_pages
