// Readable names of kernels and API functions.
#pragma once

#include <string>
#include <string_view>

namespace fathom::profile {

// "_ZN6fathom3lab13transpose_gpu12_GLOBAL__N_111tile_kernelILi32EEEvPf" is "transpose_gpu::tile_kernel<32>":
// without return type, parameters, anonymous namespaces and our own outer ones. Returns other names
// unchanged.
std::string readable_kernel_name(const char* symbol);

// "cudaLaunchKernel_v7000" is "cudaLaunchKernel": CUPTI appends the version that introduced a function.
std::string readable_api_name(std::string_view function);

}  // namespace fathom::profile
