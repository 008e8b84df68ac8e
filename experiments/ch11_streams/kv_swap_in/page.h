// The copy of one page, and the requests.
#pragma once

#include <algorithm>

#include "cuda/check.h"
#include "swap_in.h"

namespace fathom::lab::kv_swap_in {

inline constexpr size_t kPageBytes = kPageWords * sizeof(uint32_t);

inline void copy_page(const SwapIn& p, View<const uint32_t, 2> in, int64_t page, StreamRef stream) {
  FATHOM_CUDA(cudaMemcpyAsync(&p.out(p.table_on_host(page), 0), &in(page, 0), kPageBytes,
                              cudaMemcpyHostToDevice, stream));
}

inline int64_t requests(const SwapIn& p) { return (p.pages() + kPagesOfRequest - 1) / kPagesOfRequest; }
// The last request may have fewer pages.
inline void copy_request(const SwapIn& p, View<const uint32_t, 2> in, int64_t request, StreamRef stream) {
  const int64_t first = request * kPagesOfRequest, end = std::min(first + kPagesOfRequest, p.pages());
  for (int64_t page = first; page < end; ++page) copy_page(p, in, page, stream);
}

}  // namespace fathom::lab::kv_swap_in
