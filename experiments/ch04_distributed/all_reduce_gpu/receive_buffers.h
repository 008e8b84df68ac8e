// Memory on each rank's GPU that all ranks write to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "all_reduce.h"
#include "cuda/device_buffer.h"
#include "kernels/collectives/ranks.h"

namespace fathom::lab::all_reduce_gpu {

// Not of the arena, which is overwritten between samples.
struct ReceiveBuffers {
  DeviceBuffer<std::byte> own;                               // zeros at first
  DeviceBuffer<int32_t> pass;                                // [1], zero at first: calls so far
  std::array<std::byte*, kernels::kMaxRanks> of_ranks = {};  // those of all ranks
};

// All ranks call it at the same time, with the same number of bytes. Throws Unavailable where the GPUs
// cannot.
std::shared_ptr<const ReceiveBuffers> receive_buffers(const Rank& me, int64_t bytes);

}  // namespace fathom::lab::all_reduce_gpu
