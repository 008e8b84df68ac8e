// A CUDA stream without CUDA's headers: what cudaStream_t points at. Null on the CPU.
#pragma once

using StreamRef = struct CUstream_st*;
