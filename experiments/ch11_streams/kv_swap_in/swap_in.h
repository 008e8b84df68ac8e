// Pages of KV cache return from the host to the device: out(table(i), .) = in(i, .). A page is one layer's
// keys or values of one block of tokens, so what a request gets back lies in many places. The host holds the
// pages twice, in pageable memory from malloc and in page-locked memory; each variant reads one of them. The
// table is on the host and on the device.
#pragma once

#include <functional>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::kv_swap_in {

// 16 tokens of 8 heads of 64 numbers, bf16: a page of gpt-oss-20b. A request has 48: keys and values of 24
// layers.
inline constexpr int64_t kPageWords = 4096, kPagesOfRequest = 48;

struct SwapIn {
  View<const uint32_t, 2> pageable_in, pinned_in;  // [pages, kPageWords]
  View<const int32_t, 1> table_on_host, table;     // a permutation of the pages
  View<uint32_t, 2> out;                           // [pages, kPageWords]
  View<uint32_t, 2> staging;                       // workspace, [pages, kPageWords]

  SwapIn(const Point& at, Arena& arena);
  int64_t pages() const { return out.extent(0); }
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void stream_per_request(const SwapIn& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void scattered(const SwapIn& p, StreamRef stream);

// Make streams or arrays; the returned call is timed.
using Call = std::function<void(const SwapIn&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call pooled_streams(const SwapIn&, StreamRef);
FATHOM_CUDA_LAUNCHER Call batched_copy(const SwapIn& p, StreamRef);

}  // namespace fathom::lab::kv_swap_in
