// All-reduce of the GPUs of one host (ranks), added to each GPU's residual stream:
//   x_r(t, h) += sum_q sum_j parts_q(t, j, h)       for every rank r; q over all ranks, j over J
// With `ids`, rank q leaves out the j where its ids(t, j) is negative: experts of other ranks.
//
// A kernel sends its sums over j into the memory of the other GPUs and waits there for theirs: no host, no
// library and no second launch. All ranks add in the order of the ranks, so that all get the same bits.
//
// bytes   J T H read, T H (ranks - 1) sent, the same received, 2 T H of x; 4 bytes each
// limit   few rows: the latency of the link; many: its bandwidth, T H (ranks - 1) 4 bytes in each direction
//
// Ranks are in lockstep (ranks.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/collectives/ranks.h"
#include "kernels/cost.h"

namespace fathom::kernels {

// Where the others send to, in the memory of each rank. Two halves, which successive all-reduces use in turn:
// a rank that is in the next one has read what it got in this one when it sends again into the same half.
struct ReceiveBuffer {
  int64_t ranks = 1, max_rows = 0, width = 0;

  // It begins with a flag of each rank, of its barriers. Byte offset of the rows of rank `source`:
  int64_t rows(int half, int64_t source) const {
    return 256 + (half * ranks + source) * (max_rows * width * 4);
  }
  int64_t bytes() const { return ranks > 1 ? rows(2, 0) : 0; }
};

struct Peers {
  int rank = 0;
  ReceiveBuffer layout;
  // Of each rank, layout.bytes() that were zero before the first call, aligned to 256 bytes, which this GPU
  // can write (cuda/peer_access.h).
  std::array<std::byte*, kMaxRanks> receive = {};
};

// `index` is the call's place in its forward pass, 0 to `count` - 1; even ones use one half of the buffer,
// odd ones the other, and `count` is even. Between two calls into the same half lies another collective of
// all ranks. `pass` [1] tells a barrier from those before it, whose flags don't count: 1, 2, .. with each
// pass. It is in device memory, which no kernel of the chain of dependent launches writes (cuda/launch.cuh).
struct CollectiveCall {
  View<const int32_t, 1> pass;
  int index = 0, count = 2;
};

// parts [T, J, H], ids [T, J] or empty, x [T, H], contiguous, aligned to 16 bytes; T <= max_rows, H = width,
// a multiple of 4; 2 to kMaxRanks ranks.
void all_reduce_add(View<const float, 3> parts, View<const int32_t, 2> ids, const Peers& peers,
                    const CollectiveCall& call, View<float, 2> x, StreamRef stream);

// Waits until all ranks are here. What they wrote before, also into each other's memory, is visible to the
// kernels that follow. Uses no half of the buffer. Between two barriers there is an all-reduce.
void rank_barrier(const Peers& peers, const CollectiveCall& call, StreamRef stream);

inline Cost all_reduce_add_cost(int64_t rows, int64_t parts, int64_t width, int64_t ranks) {
  const double numbers = static_cast<double>(rows) * static_cast<double>(width);
  const auto J = static_cast<double>(parts), N = static_cast<double>(ranks);
  return {.read = 4 * numbers * (J + N), .written = 4 * numbers * N, .flops = numbers * (J + N - 1)};
}

}  // namespace fathom::kernels
