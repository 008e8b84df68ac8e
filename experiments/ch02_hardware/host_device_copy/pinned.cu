// out = in                       n floats, from the host to the device
//
// link    4 n
// flops   0
// limit   the link. H200: PCIe, some 55 GB/s; 64 MiB take 1.2 ms
// idea    the data is in page-locked memory from the start: the copy engine reads it in place, the host only
//         submits the copy
#include "cuda/check.h"
#include "upload.h"

namespace fathom::lab::host_device_copy {

void pinned(const Upload& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  FATHOM_CUDA(cudaMemcpyAsync(p.out.data(), p.pinned_in.data(), static_cast<size_t>(p.out.bytes()),
                              cudaMemcpyHostToDevice, stream));
}

}  // namespace fathom::lab::host_device_copy
