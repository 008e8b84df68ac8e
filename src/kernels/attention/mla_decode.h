// Decode attention of multi-head latent attention (MLA, DeepSeek-V2, 2024) in its absorbed form: all query
// heads read one latent of 576 numbers for each position, which is the key; its first 512 numbers are the
// value. The last 64 of a key carry the rotary embedding.
//
// bytes   1152 for each position of a sequence, once for 64 query heads; q and out 2176 a row and head
// flops   2 (576 + 512) for each position and query head, at 64 heads at a time: fewer cost as much
// limit   up to about 90 heads DRAM bandwidth, beyond it the tensor cores. H200, 64 sequences of 4096: 302 MB
//         are 67 us at 4.5 TB/s; 64 heads are 36 GFLOP, 46 us at 800 TFLOP/s, and 128 heads 92 us
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/cost.h"

namespace fathom::kernels {

inline constexpr int64_t kMlaKey = 576, kMlaValue = 512, kMlaPage = 64;

// CTAs that run at once, at most; a GPU with more multiprocessors leaves some idle.
inline constexpr int64_t kMlaMaxCtas = 160;

// Floats of workspace, for any number of sequences and heads: partial results of sequences that are cut.
inline constexpr int64_t kMlaWorkspace = kMlaMaxCtas * 2 * 64 * (kMlaValue + 2);

// q [T, H, 576], a row for each of T sequences, H <= 128; latent [pages, 64, 576]; out [T, H, 512]. Sequence
// t attends to its first contexts(t) positions; position j lies in row j % 64 of page pages(t, j / 64). A
// context of 0 gives zeros. `scale` > 0 multiplies the products q k. Pages behind a context are not read, and
// the rest of the last page may hold anything. `contexts` and `pages` are on the device.
//
// A row's bits depend on the contexts of the sequences before it, because these decide where the row is cut.
void mla_decode(View<const bf16, 3> q, View<const bf16, 3> latent, View<const int32_t, 1> contexts,
                View<const int32_t, 2> pages, float scale, View<float, 1> workspace, View<bf16, 3> out,
                StreamRef stream);

// With `positions` of all contexts together.
inline Cost mla_decode_cost(int64_t rows, int64_t heads, int64_t positions) {
  const auto each = static_cast<double>(rows * heads), all = static_cast<double>(positions);
  return {.read    = all * 2 * kMlaKey + each * 2 * kMlaKey,
          .written = each * 2 * kMlaValue,
          .flops   = all * 2 * static_cast<double>(heads) * (kMlaKey + kMlaValue)};
}

}  // namespace fathom::kernels
