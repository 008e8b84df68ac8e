// out(table(i)) = in(i)        pages of 16 KiB, from the host to the device
//
// link    16 KiB a page
// limit   the link. H200: PCIe, some 55 GB/s; 1536 pages, 32 requests, are 25 MB, 0.46 ms
// idea    one call submits all copies, which may run in any order (cudaMemcpyBatchAsync)
#include <memory>
#include <vector>

#include "page.h"

namespace fathom::lab::kv_swap_in {
namespace {

struct Copies {
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<size_t> bytes;

  explicit Copies(size_t count) : to(count), from(count), bytes(count, kPageBytes) {}
};

}  // namespace

Call batched_copy(const SwapIn& of, StreamRef) {
  return [copies = std::make_shared<Copies>(static_cast<size_t>(of.pages()))](const SwapIn& p,
                                                                              StreamRef stream) {
    if (p.pages() == 0) return;
    for (int64_t page = 0; page < p.pages(); ++page) {
      copies->to[static_cast<size_t>(page)]   = &p.out(p.table_on_host(page), 0);
      copies->from[static_cast<size_t>(page)] = &p.pinned_in(page, 0);
    }
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder       = cudaMemcpySrcAccessOrderStream;
    size_t first                    = 0;  // the copy from which on the attributes hold
    FATHOM_CUDA(cudaMemcpyBatchAsync(copies->to.data(), copies->from.data(), copies->bytes.data(),
                                     copies->to.size(), &attributes, &first, 1, stream));
  };
}

}  // namespace fathom::lab::kv_swap_in
