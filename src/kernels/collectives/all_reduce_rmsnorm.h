// All-reduce of the GPUs of one host (ranks), added to each GPU's residual stream, and the stream normalised
// for the matrix that reads it:
//   x_r(t, h) += sum_q sum_j parts_q(t, j, h)       for every rank r; q over all ranks, j over J
//   y_r(t, h)  = x_r(t, h) weight(h) / sqrt(mean_h x_r(t, h)^2 + eps)       in bf16 (kernels/norm/rmsnorm.h)
// With `ids`, rank q leaves out the j where its ids(t, j) is negative: experts of other ranks.
//
// x and y have the bits of all_reduce_add and add_rmsnorm one after the other, which are two kernels: sums
// are added in the order of the ranks, so that all ranks get the same bits, and squares by pieces of 128
// numbers.
//
// A number is its own flag (lamport.cuh), so a row takes one trip over the link, with no fence and no
// byte beside its numbers.
//
// bytes   J T H read, T H (ranks - 1) sent, the same received, 2 T H of x, 4 bytes each; 2 T H of y
// limit   few rows: the latency of the link; many: its bandwidth, T H (ranks - 1) 4 bytes in each direction
//
// Ranks are in lockstep (ranks.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/collectives/ranks.h"
#include "kernels/cost.h"

namespace fathom::kernels {

// Where the ranks send rows to: in the memory of each, [2 halves, ranks, max_rows, width] numbers, zero
// before the first call. Only this op writes there.
struct PeerRows {
  int rank = 0, ranks = 1;
  int64_t max_rows = 0, width = 0;
  // Of each rank, numbers() of them, aligned to 16 bytes, which this GPU can write (cuda/peer_access.h).
  std::array<float*, kMaxRanks> receive = {};

  // Where rank `to` gets what rank `from` sends.
  float* rows(int to, int64_t half, int from) const {
    return receive[static_cast<size_t>(to)] + (half * ranks + from) * max_rows * width;
  }
  int64_t numbers() const { return ranks > 1 ? 2 * ranks * max_rows * width : 0; }
};

// parts [T, J, H], ids [T, J] or empty, x [T, H] in place, weight [H], y [T, H], contiguous, aligned to 16
// bytes; T <= max_rows, H = width, a multiple of 4 and at most 3072; eps > 0; 2 to kMaxRanks ranks. `weight`
// is written by no kernel of the chain of dependent launches (cuda/launch.cuh).
//
// `half` is 0 or 1. Between two calls into the same half lies another collective of all ranks, such as a call
// into the other half: a rank that is in it has read what it got in the first one, so the others may send
// again. Calls of no rows do nothing and do not count.
void all_reduce_rmsnorm(View<const float, 3> parts, View<const int32_t, 2> ids, const PeerRows& peers,
                        int half, View<float, 2> x, View<const float, 1> weight, float eps, View<bf16, 2> y,
                        StreamRef stream);

inline Cost all_reduce_rmsnorm_cost(int64_t rows, int64_t parts, int64_t width, int64_t ranks) {
  const auto H = static_cast<double>(width), J = static_cast<double>(parts), N = static_cast<double>(ranks);
  const double numbers = static_cast<double>(rows) * H;
  return {.read    = 4 * numbers * (J + N) + 4 * H,
          .written = numbers * (4 * N + 2),
          .flops   = numbers * (J + N + 3)};
}

}  // namespace fathom::kernels
