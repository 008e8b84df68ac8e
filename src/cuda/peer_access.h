// GPUs of a host that write into each other's memory, over NVLink or PCIe. Only builds with CUDA have it.
#pragma once

#include <span>

#include "core/result.h"
#include "cuda/device_id.h"

namespace fathom {

// Ok where each of them can; the error names the pair that cannot.
Status can_access_peers(std::span<const DeviceId> devices);

// From now on kernels on each of them may use memory that cudaMalloc gave on any other, for as long as the
// process runs. Precondition: can_access_peers().
void enable_peer_access(std::span<const DeviceId> devices);

}  // namespace fathom
