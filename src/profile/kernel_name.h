// Kernel names as people wrote them.
#pragma once

#include <string>
#include <string_view>

namespace fathom::profile {

// "_ZN6fathom3lab13transpose_gpu12_GLOBAL__N_111tile_kernelILi32EEEvPf" is "transpose_gpu::tile_kernel<32>":
// without return type, parameters, anonymous namespaces and our own outer ones. What is not mangled stays.
std::string readable_kernel_name(const char* symbol);

// "cudaLaunchKernel_v7000" is "cudaLaunchKernel": CUPTI names a function with the version it came with.
std::string readable_api_name(std::string_view function);

}  // namespace fathom::profile
