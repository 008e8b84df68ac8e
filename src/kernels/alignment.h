// Contract of kernels that read and write vectors of 16 bytes.
#pragma once

#include <cstdint>

namespace fathom::kernels {

inline bool aligned_to_16(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

}  // namespace fathom::kernels
