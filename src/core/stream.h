// A CUDA stream without CUDA's headers: what cudaStream_t points at. Null on the CPU.
#pragma once

using StreamRef = struct CUstream_st*;

// Marks the declaration of a launcher that a .cu file defines: in a build without CUDA it is a null pointer.
#define FATHOM_CUDA_LAUNCHER [[gnu::weak]]
