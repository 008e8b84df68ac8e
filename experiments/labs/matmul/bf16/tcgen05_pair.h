// Where the two CTAs of the rung tcgen05 keep and find things: the index arithmetic of its kernel, the same
// on the host, where a test runs it against an emulation of the instructions (tcgen05_pair_test.cpp).
#pragma once

#include <cstdint>

#include "core/view.h"
#include "cuda/tcgen05_descriptor.h"

namespace fathom::lab::matmul::tcgen05_pair {

inline constexpr int kTileM = 256, kTileN = 256, kTileK = 64;               // of the pair
inline constexpr int kHalfRows = 128, kHalfBytes = kHalfRows * kTileK * 2;  // of a, or of b, in each CTA
inline constexpr int kStageBytes   = 2 * kHalfBytes;
inline constexpr int kSteps        = kTileK / 16;                           // products of a stage
inline constexpr int kAccumulators = 2, kColumns = kAccumulators * kTileN;  // all of tensor memory
inline constexpr int kPart             = 32;  // columns of the sums that a warp reads at a time
inline constexpr uint32_t kInstruction = ptx::tcgen05_instruction_descriptor(kTileM, kTileN);

// The first row of a (`tile`: the row of tiles), or of b (the column of tiles), that CTA `rank` loads.
FATHOM_HD constexpr int first_row_of_a(int tile, int rank) { return tile * kTileM + rank * kHalfRows; }
FATHOM_HD constexpr int first_row_of_b(int tile, int rank) { return tile * kTileN + rank * kHalfRows; }

// Operands of a product, from the shared address of their stage.
FATHOM_HD constexpr uint64_t descriptor_of_a(uint32_t stage, int step) {
  return ptx::tcgen05_smem_descriptor_128b(stage + static_cast<uint32_t>(32 * step));
}
FATHOM_HD constexpr uint64_t descriptor_of_b(uint32_t stage, int step) {
  return ptx::tcgen05_smem_descriptor_128b(stage + static_cast<uint32_t>(kHalfBytes + 32 * step));
}

// Tensor memory: an address is lane << 16 | column.
FATHOM_HD constexpr uint32_t sums_at(uint32_t tensor_memory, int accumulator) {
  return tensor_memory + static_cast<uint32_t>(accumulator * kTileN);
}
// What warp `warp` of a CTA reads of it, kPart columns from `part` on. The hardware lets it read 32 lanes,
// those of warp % 4.
FATHOM_HD constexpr uint32_t part_at(uint32_t tensor_memory, int accumulator, int warp, int part) {
  return sums_at(tensor_memory, accumulator) + (static_cast<uint32_t>(warp % 4 * 32) << 16) +
         static_cast<uint32_t>(part);
}
// The row of out that a thread of the warp has then.
FATHOM_HD constexpr int stored_row(int tile, int rank, int warp, int lane) {
  return tile * kTileM + rank * kHalfRows + warp % 4 * 32 + lane;
}

}  // namespace fathom::lab::matmul::tcgen05_pair
