// Memory on each rank's GPU that all ranks write to.
#pragma once

#include <cstddef>
#include <vector>

#include "all_reduce_rmsnorm.h"
#include "cuda/device_buffer.h"

namespace fathom::lab::all_reduce_rmsnorm_gpu {

struct PeerMemory {
  DeviceBuffer<std::byte> own;  // zeros at first; not of the arena, which is overwritten between samples
  std::vector<std::byte*> of;   // of each rank
};

// All ranks call it at the same time, with the same number of bytes. Throws Unavailable where the GPUs
// cannot.
PeerMemory peer_memory(const Rank& me, int64_t bytes);

}  // namespace fathom::lab::all_reduce_rmsnorm_gpu
