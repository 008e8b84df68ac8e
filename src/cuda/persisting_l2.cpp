#include "cuda/persisting_l2.h"

#include <algorithm>

#include "cuda/check.h"
#include "cuda/per_device.h"

namespace fathom {

void PersistingL2::set_aside(int64_t bytes) {
  int max_bytes = 0;
  FATHOM_CUDA(cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxPersistingL2CacheSize, current_gpu()));
  FATHOM_CUDA(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize,
                                 static_cast<size_t>(std::min<int64_t>(bytes, max_bytes))));
  FATHOM_CUDA(cudaDeviceGetLimit(&set_aside_, cudaLimitPersistingL2CacheSize));
}

std::optional<std::string> PersistingL2::restore(StreamRef stream) const {
  std::optional<std::string> found;
  size_t persisting = 0;
  FATHOM_CUDA(cudaDeviceGetLimit(&persisting, cudaLimitPersistingL2CacheSize));
  if (persisting != set_aside_) {
    found = std::to_string(persisting) + " bytes of L2 are set aside for persisting lines";
    FATHOM_CUDA(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, set_aside_));
  }
  cudaStreamAttrValue value = {};
  FATHOM_CUDA(cudaStreamGetAttribute(stream, cudaLaunchAttributeAccessPolicyWindow, &value));
  if (value.accessPolicyWindow.num_bytes != 0) {
    found                    = "an access policy window on the harness's stream";
    value.accessPolicyWindow = {};
    FATHOM_CUDA(cudaStreamSetAttribute(stream, cudaLaunchAttributeAccessPolicyWindow, &value));
  }
  if (found || set_aside_ > 0) FATHOM_CUDA(cudaCtxResetPersistingL2Cache());
  return found;
}

}  // namespace fathom
