#include "cuda/peer_access.h"

#include <cuda_runtime.h>

#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/device_guard.h"
#include "cuda/device_name.h"

namespace fathom {

Status can_access_peers(std::span<const DeviceId> devices) {
  for (const DeviceId from : devices)
    if (!find_device(from)) return Error{why_no_device(from)};
  for (const DeviceId from : devices)
    for (const DeviceId to : devices) {
      int can = 0;
      if (from.ordinal == to.ordinal) continue;
      FATHOM_CUDA(cudaDeviceCanAccessPeer(&can, from.ordinal, to.ordinal));
      if (!can)
        return Error{to_string(from) + " cannot write into the memory of " + to_string(to) +
                     ": the GPUs of several ranks need NVLink or PCIe peer access"};
    }
  return Ok{};
}

void enable_peer_access(std::span<const DeviceId> devices) {
  for (const DeviceId from : devices) {
    const DeviceGuard current(from);
    for (const DeviceId to : devices) {
      if (from.ordinal == to.ordinal) continue;
      const cudaError_t error = cudaDeviceEnablePeerAccess(to.ordinal, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError();
      else
        FATHOM_CUDA(error);
    }
  }
}

}  // namespace fathom
