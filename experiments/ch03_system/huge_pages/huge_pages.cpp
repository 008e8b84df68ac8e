// out(0) = sum of the payload along `steps` random links                 records of 64 bytes
//
// bytes   8 steps useful, a line of 64 for each
// flops   0; `steps` dependent loads
// limit   load latency of the level that holds the array
// idea    the same walk over memory for which madvise(MADV_HUGEPAGE) was called: one TLB entry covers 2 MiB,
//         and the whole array needs a few dozen of them
#include "huge_pages.h"

namespace fathom::lab::huge_pages {

void huge_pages(const LongWalk& p, Context&) { walk(p, p.huge); }

}  // namespace fathom::lab::huge_pages
