// Compares with the toolkit's cuda_occupancy.h over many launch configurations.
#include <cuda_occupancy.h>
#include <gtest/gtest.h>

#include <climits>

#include "profile/occupancy.h"

namespace fathom::profile {
namespace {

int toolkit_blocks(int compute_capability, const GpuFacts& gpu, int threads, int registers, int shared) {
  cudaOccDeviceProp chip;
  chip.computeMajor                = compute_capability / 10;
  chip.computeMinor                = compute_capability % 10;
  chip.maxThreadsPerBlock          = 1024;
  chip.maxThreadsPerMultiprocessor = gpu.warps * 32;
  chip.regsPerBlock                = gpu.registers;
  chip.regsPerMultiprocessor       = gpu.registers;
  chip.warpSize                    = 32;
  chip.sharedMemPerBlock           = 48 << 10;
  chip.sharedMemPerMultiprocessor  = static_cast<size_t>(gpu.shared);
  chip.numSms                      = 1;
  chip.sharedMemPerBlockOptin      = static_cast<size_t>(gpu.shared_of_one);
  chip.reservedSharedMemPerBlock   = 1 << 10;

  cudaOccFuncAttributes kernel;
  kernel.maxThreadsPerBlock        = INT_MAX;
  kernel.numRegs                   = registers;
  kernel.sharedSizeBytes           = 0;
  kernel.partitionedGCConfig       = PARTITIONED_GC_OFF;
  kernel.shmemLimitConfig          = FUNC_SHMEM_LIMIT_OPTIN;
  kernel.maxDynamicSharedSizeBytes = static_cast<size_t>(shared);
  kernel.numBlockBarriers          = 1;

  const cudaOccDeviceState state;
  cudaOccResult result;
  if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &chip, &kernel, &state, threads,
                                              static_cast<size_t>(shared)) != CUDA_OCC_SUCCESS)
    return -1;
  return result.activeBlocksPerMultiprocessor;
}

TEST(OccupancyCuda, AgreesWithTheToolkit) {
  for (const int chip : {80, 86, 89, 90, 100, 103, 120}) {
    const GpuFacts gpu = *gpu_facts(chip);
    int compared       = 0;
    for (int threads = 1; threads <= 1056; threads += 31)
      for (int registers = 1; registers <= 256; registers += 7)
        for (int shared = 0; shared <= gpu.shared_of_one + 512; shared += 7919) {
          ASSERT_EQ(theoretical_occupancy(gpu, threads, registers, shared).blocks,
                    toolkit_blocks(chip, gpu, threads, registers, shared))
              << "sm_" << chip << ", " << threads << " threads, " << registers << " registers, " << shared
              << " bytes";
          ++compared;
        }
    EXPECT_GT(compared, 10000);
  }
}

}  // namespace
}  // namespace fathom::profile
