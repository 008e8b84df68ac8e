// out(table(i)) = in(i)        pages of 16 KiB, from the host to the device
//
// link    16 KiB a page
// limit   the link. H200: PCIe, some 55 GB/s; 1536 pages, 32 requests, are 25 MB, 0.46 ms
// idea    baseline: a request makes a stream, copies its pages from where malloc put them, waits, and
//         destroys the stream
#include "page.h"

namespace fathom::lab::kv_swap_in {

void stream_per_request(const SwapIn& p, StreamRef stream) {
  FATHOM_CUDA(cudaStreamSynchronize(stream));  // what used the pages before
  for (int64_t r = 0; r < requests(p); ++r) {
    cudaStream_t own = nullptr;
    FATHOM_CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    copy_request(p, p.pageable_in, r, own);
    FATHOM_CUDA(cudaStreamSynchronize(own));
    FATHOM_CUDA(cudaStreamDestroy(own));
  }
}

}  // namespace fathom::lab::kv_swap_in
