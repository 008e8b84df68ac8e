// Which GPU of this process. Cheap to include, in .cu files too.
#pragma once

namespace fathom {

// CUDA's ordinal: the position among the GPUs that CUDA_VISIBLE_DEVICES shows to this process.
struct DeviceId {
  int ordinal = 0;

  constexpr bool operator==(const DeviceId&) const = default;
};

inline constexpr int kMaxGpus = 64;  // of one process

}  // namespace fathom
