// Launches of a chain of kernels in one stream, each of which may begin while the one before it ends
// (programmatic dependent launch; CUDA C++ Programming Guide, "Programmatic Dependent Launch and
// Synchronization"). Captured into a graph, the edges stay so. On GPUs before sm_90 the kernels run one after
// another.
#pragma once

#include <cstddef>
#include <utility>

#include "core/cuda.h"
#include "core/stream.h"

namespace fathom {

// Lets a kernel use so much dynamic shared memory. Once, before its first launch, and not while a stream is
// captured into a graph.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, int bytes) {
  FATHOM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

// The kernel must call ptx::wait_for_previous() before it reads what an earlier one wrote, or writes.
// `cluster` blocks, consecutive in x, form a cluster.
template <class... Parameters, class... Arguments>
void launch_chained(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, int cluster,
                    StreamRef stream, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id                  = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id                                         = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x                           = static_cast<unsigned>(cluster);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config                                       = {};
  config.gridDim                                                  = grid;
  config.blockDim                                                 = block;
  config.dynamicSmemBytes                                         = shared_bytes;
  config.stream                                                   = stream;
  config.attrs                                                    = attributes;
  config.numAttrs                                                 = cluster > 1 ? 2 : 1;
  FATHOM_CUDA(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...));
}

template <class... Parameters, class... Arguments>
void launch_chained(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                    StreamRef stream, Arguments&&... arguments) {
  launch_chained(kernel, grid, block, shared_bytes, 1, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace fathom
