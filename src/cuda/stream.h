// cudaStream_t without CUDA's headers. Null on the CPU.
#pragma once

using StreamRef = struct CUstream_st*;

// Marks the declaration of a launcher that a .cu file defines. In a build without CUDA its address is null.
#define FATHOM_CUDA_LAUNCHER [[gnu::weak]]
