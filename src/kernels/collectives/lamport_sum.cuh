// The sum over ranks of a row, by the protocol of lamport.cuh, in vectors of four numbers. Successive calls
// use two halves of the receive buffer in turn: rank B sends to a place again in call n + 2 at the earliest,
// when it has all of rank A's rows of call n + 1.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/collectives/lamport.cuh"
#include "kernels/norm/sum_of_squares.cuh"

namespace fathom::kernels {

// What a rank adds to the sum.
struct RankParts {
  const float4* parts;  // [rows, addends, vectors]
  const int32_t* ids;   // [rows, addends], negative: an addend of another rank; null: all are this rank's
  int addends, vectors;

  // Its sum over the addends of vector `v` of a row. Never -0.
  __device__ float4 sum(int64_t row, int v) const {
    constexpr int kInFlight = 4;  // that a thread loads at once
    float4 sum              = {};
    for (int j = 0; j < addends; j += kInFlight) {
      bool here[kInFlight];
      float4 part[kInFlight] = {};
#pragma unroll
      for (int i = 0; i < kInFlight; ++i)
        here[i] = j + i < addends && (!ids || __ldcg(ids + row * addends + j + i) >= 0);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i)
        if (here[i]) part[i] = __ldcg(parts + (row * addends + j + i) * vectors + v);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) sum = sum + part[i];  // + 0 changes no bit, as sum is never -0
    }
    return sum;
  }
};

struct LamportSum {
  RankParts own;
  int rank, ranks;
  int64_t step;                // from what comes of one rank to that of the next, in vectors
  float4* receive[kMaxRanks];  // of each rank, what comes from rank 0: [rows, vectors]

  // Sends this rank's sum to all others, and returns it.
  __device__ float4 send(int64_t row, int v) const {
    const float4 sum = own.sum(row, v);
    const uint4 bits = {__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z),
                        __float_as_uint(sum.w)};
    for (int r = 1; r < ranks; ++r)  // each rank begins with the next one
      lamport_send(receive[(rank + r) % ranks] + rank * step + row * own.vectors + v, bits);
    return sum;
  }

  // Waits for the others' sums and adds them in the order of the ranks. That a +0 comes as -0 changes no bit:
  // this rank's sum, which is not -0, is among the addends.
  __device__ float4 sum_of_ranks(int64_t row, int v, const float4& sent) const {
    float4 sum = {};
    for (int r = 0; r < ranks; ++r) {
      float4 part = sent;
      if (r != rank) {
        const uint4 bits = lamport_receive(receive[rank] + r * step + row * own.vectors + v);
        part             = {__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                            __uint_as_float(bits.w)};
      }
      sum = r == 0 ? part : sum + part;
    }
    return sum;
  }
};

}  // namespace fathom::kernels
