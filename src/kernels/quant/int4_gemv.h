// Products of up to 8 bf16 rows with 4-bit weights (W4A16), of one or several matrices in one launch. K
// beyond 8192 takes several launches; each after the first adds to y.
//   y(m, t, n) = sum_k x(m, t, k) scale(m, n, k / G) (code(m, n, k) - zero(m, n, k / G))
//
// bytes   M N K / 2 of codes, 2.5 of each group's scale and zero point; 2 M T K of x; 4 M T N written
// flops   2 M T N K
// limit   memory bandwidth: little more than a quarter of the bytes of bf16 weights
//
// Codes and zero points are 0 to 15, scales FP16, each for a group of G = 64 or 128 inputs of an output (the
// last group of a row may be half as long): the numbers of GPTQ's and AWQ's checkpoints. Symmetric weights
// have a zero point of 8 everywhere, which is not stored. All pointers are to the device.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/cost.h"

namespace fathom::kernels {

inline constexpr int64_t kMaxInt4GemvRows = 8;

// As a checkpoint has them.
struct Int4Matrices {
  View<const uint8_t, 3> codes;  // [M, N, K / 2], the lower input in the lower four bits; K % 64 == 0
  View<const fp16, 3> scales;    // [M, N, groups]
  View<const uint8_t, 3> zeros;  // [M, N, groups], one a byte; without data: symmetric
};

// As the tensor cores want them. Rows, padded to a multiple of 16, and columns are cut into units of 16 x 64,
// those of the same 16 rows one after another along K:
//   codes   [32 lanes][16 bytes], word s for columns 16 s .. 16 s + 16 of the unit. The halves of a word's
//           16-bit pairs are the two columns of a register of an A fragment (cuda/ptx.cuh, mma_m16n8k16):
//           a[i] has bits 4 i .. 4 i + 4 and 16 + 4 i .. 20 + 4 i.
// Two units make a step. For 16 rows and the 128 / G groups of a step:
//   scales  [8 g][128 / G][2 FP16]: rows g and g + 8
//   zeros   [8 g][128 / G] bytes: row g in the lower four bits, row g + 8 in the upper
struct PackedInt4 {
  const uint8_t* codes   = nullptr;
  const uint32_t* scales = nullptr;
  const uint8_t* zeros   = nullptr;           // null: symmetric
  int64_t matrices = 0, rows = 0, depth = 0;  // rows without padding
  int64_t group = 128;

  int64_t row_blocks() const { return (rows + 15) / 16; }
  int64_t groups() const { return (depth + group - 1) / group; }
  int64_t steps() const { return (depth + 127) / 128; }
  // What the three arrays hold; the last only where they are not symmetric.
  int64_t code_bytes() const { return matrices * row_blocks() * 16 * depth / 2; }
  int64_t scale_words() const { return matrices * row_blocks() * steps() * 8 * (128 / group); }
  int64_t zero_bytes() const { return scale_words(); }
  int64_t bytes() const { return code_bytes() + 4 * scale_words() + (zeros ? zero_bytes() : 0); }
};

// Writes what `to` points at; its shape and group are those of `from`.
void pack_int4(const Int4Matrices& from, const PackedInt4& to, StreamRef stream);

// Codes are 16-byte aligned, scales 8-byte, zero points 2-byte.
// x [M, T, K], T at most kMaxInt4GemvRows, rows contiguous and 16-byte aligned; y [M, T, N], rows contiguous.
// Sums are in fp32; their order does not depend on T, so that a row's result does not depend on other rows.
// Weights are read before earlier kernels of the stream have ended (programmatic dependent launch): once they
// are packed, synchronize.
void int4_gemv(View<const bf16, 3> x, const PackedInt4& w, View<float, 3> y, StreamRef stream);

inline Cost int4_gemv_cost(int64_t tokens, const PackedInt4& w) {
  const auto M = static_cast<double>(w.matrices), T = static_cast<double>(tokens);
  const auto N = static_cast<double>(w.rows), K = static_cast<double>(w.depth);
  return {.read    = static_cast<double>(w.bytes()) + 2 * M * T * K,
          .written = 4 * M * T * N,
          .flops   = 2 * M * T * N * K};
}

}  // namespace fathom::kernels
