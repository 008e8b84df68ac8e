// out(table(i)) = in(i)        pages of 16 KiB, from the host to the device
//
// link    16 KiB a page
// limit   the link. H200: PCIe, some 55 GB/s; 1536 pages, 32 requests, are 25 MB, 0.46 ms
// idea    the pages lie one after the other in page-locked memory, in the order in which they left: one
//         copy brings them to the device, and a kernel puts them in their places, at a hundred times the
//         link's rate
#include "page.h"

namespace fathom::lab::kv_swap_in {
namespace {

constexpr int kThreads = 256, kVectors = kPageWords / 4;

__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const uint4* in, const int32_t* table, uint4* out) {
  const uint4* from = in + int64_t{blockIdx.x} * kVectors;
  uint4* to         = out + int64_t{table[blockIdx.x]} * kVectors;
  for (int i = threadIdx.x; i < kVectors; i += kThreads) to[i] = from[i];
}

}  // namespace

void scattered(const SwapIn& p, StreamRef stream) {
  if (p.pages() == 0) return;
  FATHOM_CUDA(cudaMemcpyAsync(p.staging.data(), p.pinned_in.data(), static_cast<size_t>(p.pinned_in.bytes()),
                              cudaMemcpyHostToDevice, stream));
  scatter_kernel<<<static_cast<unsigned>(p.pages()), kThreads, 0, stream>>>(
      reinterpret_cast<const uint4*>(p.staging.data()), p.table.data(),
      reinterpret_cast<uint4*>(p.out.data()));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::kv_swap_in
