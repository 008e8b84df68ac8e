// Top-p without a sort. The threshold logit is the one from which on the likeliest tokens have top_p of the
// weight. Each look cuts the interval that holds it into parts at 8 pivots, and sums the weights from each
// pivot on. A row is split over warps, a slice of consecutive tokens each. This header has a warp's work on
// its slice; the reduction over warps differs between variants. Of a sampling rule only temperature and top-p
// are used.
#pragma once

#include <cfloat>
#include <climits>

#include "cuda/philox.cuh"
#include "cuda/ptx.cuh"
#include "sampling.h"

namespace fathom::lab::sampling {

inline constexpr int kPivots = 8;
inline constexpr int kLoads  = 4;  // vectors that a lane loads at once

// Tokens: how many, and their weights, of which the likeliest token's is 1.
struct alignas(16) Total {
  double weight = 0;
  int count     = 0;
};

// A warp's logits, in global or shared memory.
struct Slice {
  const float4* logits;
  int begin, vectors;  // the first token's id, and how many times 4 tokens there are
};

struct Weight {
  float max, scale;  // the row's largest logit; log2(e) / temperature

  __device__ float operator()(float logit) const { return ptx::ex2_approx((logit - max) * scale); }
};

__device__ inline int lane() { return threadIdx.x % 32; }
__device__ inline int warp() { return threadIdx.x / 32; }

template <class T>
__device__ T warp_sum(T sum) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  return sum;
}

// Every vector of the slice, with the id of its first token; a lane has every 32nd, kLoads at a time.
template <class F>
__device__ void for_vectors(const Slice& slice, F use) {
  for (int base = lane(); base < slice.vectors; base += 32 * kLoads) {
    float4 v[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      v[i] = base + 32 * i < slice.vectors ? slice.logits[base + 32 * i]
                                           : float4{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float logits[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
      use(logits, slice.begin + 4 * (base + 32 * i));
    }
  }
}

__device__ inline float max_of(const Slice& slice) {
  float max = -INFINITY;
  for_vectors(slice, [&](const float(&logits)[4], int) {
    max = fmaxf(max, fmaxf(fmaxf(logits[0], logits[1]), fmaxf(logits[2], logits[3])));
  });
#pragma unroll
  for (int other = 16; other > 0; other /= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, other));
  return max;
}

// The threshold logit lies in [floor, end); totals of the tokens from either on.
struct Interval {
  float floor = 0, end = 0;
  Total from_floor = {}, from_end = {};

  // The lower end of part j, in lanes j, j + kPivots, ...
  __device__ float pivot() const {
    const double width = static_cast<double>(end) - static_cast<double>(floor);
    return static_cast<float>(floor + width * (lane() % kPivots) / kPivots);
  }
  // Keeps the last part from whose pivot on tokens have at least the weight `wanted`, or the first part.
  // `from_pivot` is the total from the lane's pivot on.
  __device__ void narrow(float pivot, const Total& from_pivot, double wanted) {
    const uint32_t enough = __ballot_sync(~0u, from_pivot.weight >= wanted) % (1 << kPivots);
    const int part        = 31 - __clz(static_cast<int>(enough | 1));
    const auto of_lane    = [&](int j) {
      return Total{__shfl_sync(~0u, from_pivot.weight, j), __shfl_sync(~0u, from_pivot.count, j)};
    };
    floor      = __shfl_sync(~0u, pivot, part);
    from_floor = of_lane(part);
    if (part + 1 == kPivots) return;
    end      = __shfl_sync(~0u, pivot, part + 1);
    from_end = of_lane(part + 1);
  }
  // The interval has one token, or only tokens with equal logits, which no pivot separates.
  __device__ bool is_final() const {
    const float cut = pivot();
    return from_floor.count - from_end.count <= 1 || !__any_sync(~0u, cut > floor && cut < end);
  }
};

// The first pivots, in natural logarithms of weights, where top-p often ends. Tokens below the first (2^-44)
// are ignored.
static __constant__ float kFirstLogs[kPivots] = {-30.5f, -17, -12, -9, -6.5f, -4.5f, -2.5f, -1};
__device__ inline float first_pivot(float max, float temperature) {
  return max + kFirstLogs[lane() % kPivots] * temperature;
}

// The total of the slice's tokens from the lane's pivot on and below `end`. The first pivot is the lowest.
__device__ inline Total total_from(const Slice& slice, float pivot, float end, const Weight& weight) {
  float pivots[kPivots];
  Total totals[kPivots];
#pragma unroll
  for (int j = 0; j < kPivots; ++j) pivots[j] = __shfl_sync(~0u, pivot, j);
  for_vectors(slice, [&](const float(&logits)[4], int) {
    bool some = false;
#pragma unroll
    for (const float logit : logits) some |= logit >= pivots[0] && logit < end;
    if (!some) return;  // nearly always, after the first look
    float w[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) w[c] = logits[c] < end ? weight(logits[c]) : 0;
#pragma unroll
    for (int j = 0; j < kPivots; ++j) {
      float sum = 0;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const bool in = logits[c] >= pivots[j] && logits[c] < end;
        sum += in ? w[c] : 0;
        totals[j].count += in;
      }
      totals[j].weight += sum;
    }
  });
  Total mine;
#pragma unroll
  for (int j = 0; j < kPivots; ++j) {
    const Total of_warp{warp_sum(totals[j].weight), __reduce_add_sync(~0u, totals[j].count)};
    if (lane() % kPivots == j) mine = of_warp;
  }
  return mine;
}

// The tokens within top-p: above the threshold, and of those equal to it the lower ids.
struct Cut {
  float threshold = -INFINITY;
  int last_id     = INT_MAX;

  __device__ float weight_of(const float (&logits)[4], int id, const Weight& weight, float (&w)[4]) const {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const bool in = logits[c] > threshold || (logits[c] == threshold && id + c <= last_id);
      w[c]          = in ? weight(logits[c]) : 0;
    }
    return w[0] + w[1] + w[2] + w[3];
  }
};

// The id of the n-th token with this logit, n >= 1. By whole warps; equal logits at the threshold are rare.
__device__ inline int nth_equal(const float* row, int vocabulary, float logit, int n) {
  for (int base = 0; base < vocabulary; base += 32) {
    const int id    = base + lane();
    uint32_t equals = __ballot_sync(~0u, id < vocabulary && row[id] == logit);
    if (n > __popc(equals)) {
      n -= __popc(equals);
      continue;
    }
    while (--n > 0) equals &= equals - 1;
    return base + __ffs(static_cast<int>(equals)) - 1;
  }
  return INT_MAX;
}

__device__ inline Cut cut_at(const Interval& threshold, double wanted, const Weight& weight, const float* row,
                             int vocabulary) {
  const int equals = threshold.from_floor.count - threshold.from_end.count;
  if (equals <= 1) return {.threshold = threshold.floor};
  const double needed = ceil((wanted - threshold.from_end.weight) / weight(threshold.floor));
  const int ties      = static_cast<int>(fmin(fmax(needed, 1.0), 1.0 * equals));
  if (ties == equals) return {.threshold = threshold.floor};
  return {.threshold = threshold.floor, .last_id = nth_equal(row, vocabulary, threshold.floor, ties)};
}

__device__ inline double weight_of(const Slice& slice, const Cut& cut, const Weight& weight) {
  double sum = 0;
  for_vectors(slice, [&](const float(&logits)[4], int id) {
    float w[4];
    sum += cut.weight_of(logits, id, weight, w);
  });
  return warp_sum(sum);
}

// In (0, 1): engine/sampler.cpp.
__device__ inline double uniform(const kernels::SamplingRow& rule) {
  const uint4 words = philox(static_cast<uint64_t>(rule.position), 0, rule.seed);
  return (static_cast<double>((uint64_t{words.y} << 32 | words.x) >> 11) + 0.5) * 0x1p-53;
}

// The last lane that has some weight and before which there is at most `target`; subtracts that.
__device__ inline int locate(double weight, double& target) {
  double with = weight;
#pragma unroll
  for (int other = 1; other < 32; other *= 2) {
    const double before = __shfl_up_sync(~0u, with, other);
    if (lane() >= other) with += before;
  }
  const double up     = __shfl_up_sync(~0u, with, 1);
  const double before = lane() == 0 ? 0 : up;
  const uint32_t fits = __ballot_sync(~0u, weight > 0 && before <= target);
  const int found     = 31 - __clz(static_cast<int>(fits | 1));
  target -= __shfl_sync(~0u, before, found);
  return found;
}

// The slice's token at which its running sum passes `target`. Each lane has a run of neighbours, of an odd
// number of vectors, so that lanes meet all banks of shared memory.
__device__ inline int draw_from(const Slice& slice, const Cut& cut, const Weight& weight, double target) {
  const int each  = (slice.vectors + 31) / 32 | 1;
  const int first = min(each * lane(), slice.vectors), last = min(first + each, slice.vectors);
  const auto weigh = [&](int i, float(&w)[4]) {
    const float4 v        = slice.logits[i];
    const float logits[4] = {v.x, v.y, v.z, v.w};
    return cut.weight_of(logits, slice.begin + 4 * i, weight, w);
  };
  double sum = 0;
  for (int i = first; i < last; ++i) {
    float w[4];
    sum += weigh(i, w);
  }
  const int owner = locate(sum, target);
  int id          = -1;
  double before   = 0;
  for (int i = first; i < last; ++i) {
    float w[4];
    weigh(i, w);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (w[c] > 0 && before <= target) id = slice.begin + 4 * i + c;
      before += w[c];
    }
  }
  return __shfl_sync(~0u, id, owner);
}

}  // namespace fathom::lab::sampling
