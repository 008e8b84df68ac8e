// The descriptors of tcgen05.mma, the tensor-core instruction of Blackwell (PTX ISA 9.7.16, tables
// "Instruction descriptor format for .kind::f16" and "Shared memory descriptor"). Computed the same on the
// host and on the GPU.
#pragma once

#include <cstdint>

#include "core/view.h"

namespace fathom::ptx {

// bf16 operands along k (K-major), sums in fp32.
//   m   rows: 128, or 256 for two CTAs
//   n   columns: a multiple of 16, at most 256
FATHOM_HD constexpr uint32_t tcgen05_instruction_descriptor(int m, int n) {
  constexpr uint32_t kFp32 = 1u << 4, kBf16 = 1u << 7 | 1u << 10;  // of d, and of a and b
  return kFp32 | kBf16 | static_cast<uint32_t>(n / 8) << 17 | static_cast<uint32_t>(m / 16) << 24;
}

// An operand in shared memory with the 128-byte swizzle: rows of 128 bytes, in which 16-byte piece c of row r
// is at c ^ (r % 8), the layout of tensor_map() with a swizzle. Row r holds 64 values of k; the next 16 are
// 32 bytes further. `address` (shared_address) of the first row is a multiple of 1024, or that and 32, 64 or
// 96 bytes.
FATHOM_HD constexpr uint64_t tcgen05_smem_descriptor_128b(uint32_t address) {
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32, kVersion = uint64_t{1} << 46,
                     kSwizzle128 = uint64_t{2} << 61;
  return kSwizzle128 | kVersion | kEightRows | uint64_t{1} << 16 | (address & 0x3ffff) >> 4;
}

}  // namespace fathom::ptx
