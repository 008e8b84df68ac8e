// Programmatic dependent launch (PDL): a kernel of a stream may start before the previous one has ended (CUDA
// C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"). Graphs keep these edges when
// they are captured. On GPUs before sm_90 the kernels run one after another.
#pragma once

#include <cstddef>
#include <utility>

#include "cuda/check.h"
#include "cuda/per_device.h"
#include "cuda/stream.h"

namespace fathom {

// Raises the limit of dynamic shared memory of a kernel, on the current GPU. Call it once for each GPU
// (cuda/per_device.h), before the first launch, and not while a stream is captured into a graph.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, int bytes) {
  FATHOM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

// The same, once for each GPU. For launchers that always ask for the same number of bytes.
template <auto* kKernel>
void allow_shared_memory_once(int bytes) {
  static PerDevice<bool> allowed;
  allowed.get([&] { return allow_shared_memory(kKernel, bytes), true; });
}

// Each `cluster` CTAs, consecutive in x, form a cluster; `grid.x` is a multiple of it.
template <class... Parameters, class... Arguments>
void launch_in_clusters(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                        int cluster, StreamRef stream, Arguments&&... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id                  = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x    = static_cast<unsigned>(cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config                               = {};
  config.gridDim                                          = grid;
  config.blockDim                                         = block;
  config.dynamicSmemBytes                                 = shared_bytes;
  config.stream                                           = stream;
  config.attrs                                            = &attribute;
  config.numAttrs                                         = 1;
  FATHOM_CUDA(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...));
}

// The kernel must call ptx::griddepcontrol_wait() before it writes, or reads results of earlier kernels. Each
// `cluster` CTAs, consecutive in x, form a cluster.
template <class... Parameters, class... Arguments>
void launch_with_pdl(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, int cluster,
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
void launch_with_pdl(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                     StreamRef stream, Arguments&&... arguments) {
  launch_with_pdl(kernel, grid, block, shared_bytes, 1, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace fathom
