// out = in                       n floats, from the host to the device
//
// link    4 n
// flops   0
// limit   the link. H200: PCIe, some 55 GB/s; 64 MiB take 1.2 ms
// idea    baseline: a copy from malloc's memory. The system may move its pages at any time, so the copy
//         engine cannot read it: the driver first copies it, on this thread, to page-locked memory of its own
#include "cuda/check.h"
#include "upload.h"

namespace fathom::lab::host_device_copy {

void pageable(const Upload& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  FATHOM_CUDA(cudaMemcpyAsync(p.out.data(), p.pageable_in.data(), static_cast<size_t>(p.out.bytes()),
                              cudaMemcpyHostToDevice, stream));
}

}  // namespace fathom::lab::host_device_copy
