// out(table(i)) = in(i)        pages of 16 KiB, from the host to the device
//
// link    16 KiB a page
// limit   the link. H200: PCIe, some 55 GB/s; 1536 pages, 32 requests, are 25 MB, 0.46 ms
// idea    four streams that stay, and pages in page-locked memory: the host only submits. The number of
//         copies costs all the same: a call takes the host 2.7 us, the link 0.3 us
#include <memory>

#include "experiments/ch11_streams/side_streams.h"
#include "page.h"

namespace fathom::lab::kv_swap_in {
namespace {

constexpr int kStreams = 4;

}  // namespace

Call pooled_streams(const SwapIn&, StreamRef) {
  return [pool = std::make_shared<const SideStreams>(kStreams)](const SwapIn& p, StreamRef stream) {
    pool->fork(stream);
    for (int64_t r = 0; r < requests(p); ++r) copy_request(p, p.pinned_in, r, (*pool)[r % kStreams]);
    pool->join(stream);
  };
}

}  // namespace fathom::lab::kv_swap_in
