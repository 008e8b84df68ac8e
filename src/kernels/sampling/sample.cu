// id = argmax(logits), argmax(logits / temperature + Gumbel numbers), or an id drawn from
// softmax(logits / temperature) restricted by top-k, top-p and min-p
//
// bytes   4 V a row; with min-p a row is read twice, with top-k or top-p three times or four
// flops   some 40 V a row with top-k or top-p; 60 for each Gumbel number
// limit   one row: latency, and the 64 bytes a clock that each of 8 multiprocessors gets from L2; many rows:
//         memory bandwidth, 51 MB for 64 rows of V = 201088
// idea    A cluster of 8 CTAs has a row; each warp has a run of consecutive ids. Top-k and top-p share one
//         search for the threshold logit: the largest logit such that k tokens, or tokens of the wanted
//         weight, are not below it. The search divides the interval that holds the threshold into 8 parts. A
//         warp keeps in shared memory only its logits within the interval, so that only the first passes go
//         through the whole row. Among logits equal to the threshold the lower ids win. Sums are always
//         added in the same order.
//         Gumbel numbers: a warp knows a lower bound of its best sum so far. Tokens that could not reach it
//         with the largest Gumbel number there is (22.9) get none, nor those whose -ln(1 - u), which is at
//         least G, is too small. Draw: the id at which the running sum of weights exceeds u times the total;
//         found by the sums of CTAs, then of warps, of lanes, and of single tokens.
// paper   flashinfer.ai, "Sorting-Free GPU Kernels for LLM Sampling", 2025, also finds thresholds by pivots,
//         but draws before it knows them
#include <cfloat>
#include <climits>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/philox.cuh"
#include "cuda/ptx.cuh"
#include "cuda/radix_key.cuh"
#include "cuda/warp_reduce.cuh"
#include "kernels/sampling/gumbel.cuh"
#include "kernels/sampling/sample.h"

namespace fathom::kernels {
namespace {

constexpr int kClusterSize = 8;
constexpr int kWarps       = 16;
constexpr int kThreads     = 32 * kWarps;
constexpr int kLoads       = 7;  // vectors that a lane loads at once
constexpr int kParts       = 8;  // of an interval

// Tokens whose logit is at least some value: how many, and the sum of their weights. The likeliest token has
// weight 1.
struct alignas(16) Total {
  double weight = 0;
  int count     = 0;
};
struct alignas(8) WarpTotal {
  float weight = 0;
  int count    = 0;
};

// Totals for the parts of an interval. Lane j has those of part j: of logits that are at least `first`.
struct Parts {
  float first;
  Total row_total;
  WarpTotal warp_total;
};

// The interval [floor, end) that holds the threshold logit, and the totals from either end on. In shared
// memory, because registers are short; all lanes of a warp write the same.
struct Interval {
  float floor = 0, end = 0;
  Total from_floor = {}, from_end = {};
  WarpTotal warp_from_end = {};

  // Continues in the last part from which on there is at least `least`, or else in the first part.
  __device__ void narrow(const Parts& parts, const Total& least) {
    const bool enough = parts.row_total.count >= least.count && parts.row_total.weight >= least.weight;
    const int part    = 31 - __clz(static_cast<int>(__ballot_sync(~0u, enough) % (1 << kParts) | 1));
    const auto of     = [](auto value, int lane) { return __shfl_sync(~0u, value, lane); };
    floor             = of(parts.first, part);
    from_floor        = {of(parts.row_total.weight, part), of(parts.row_total.count, part)};
    if (part + 1 == kParts) return;
    end           = of(parts.first, part + 1);
    from_end      = {of(parts.row_total.weight, part + 1), of(parts.row_total.count, part + 1)};
    warp_from_end = {of(parts.warp_total.weight, part + 1), of(parts.warp_total.count, part + 1)};
  }
};

struct Shared {
  Total cta_totals[2][kClusterSize][kParts];  // two exchanges alternate
  WarpTotal warp_totals[2][kWarps][kParts];
  uint64_t arrived[2];  // one for each of two exchanges; completed by their stores
  uint64_t bests[kWarps];
  Interval intervals[kWarps];
  SamplingRow rule;
};

__device__ int lane() { return threadIdx.x % 32; }
__device__ int warp() { return threadIdx.x / 32; }
__device__ int cta_rank() { return blockIdx.x % kClusterSize; }  // rank of this CTA in its cluster

__device__ float max_or_nan(float a, float b) {  // NaN if either is
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

constexpr float4 kNoLogits{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
__device__ float at(float4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// A number in (0, 1) from Philox's first two words (core/rng.h), as engine/sampler.cpp makes it.
__device__ double uniform(uint64_t seed, int64_t position) {
  const uint4 words = philox(static_cast<uint64_t>(position), 0, seed);
  return (static_cast<double>((uint64_t{words.y} << 32 | words.x) >> 11) + 0.5) * 0x1p-53;
}

// The state of a warp.
struct Row {
  Shared& shared;
  const float4* logits;  // of this warp
  float* slice;          // room for them in shared memory, of this warp alone
  int begin, vectors;    // this warp's first id, and its logits divided by 4
  int exchanges   = 0;   // exchanges so far
  float max_logit = 0;   // the largest logit of the row
  float scale     = 0;   // log2(e) / temperature

  __device__ float weight(float logit) const { return ptx::ex2_approx((logit - max_logit) * scale); }

  // Sends a Total for each of n parts to every CTA of the cluster. Warp w sends part w; `mine` is the same in
  // its first kClusterSize lanes. Returns all CTAs' totals: CTA b's is at [b * kParts + part].
  __device__ const Total* exchange(int n, Total mine) {
    const int now = exchanges & 1;
    if (warp() < n && lane() < kClusterSize) {
      const uint32_t address = ptx::shared_address(&shared.cta_totals[now][cta_rank()][warp()]);
      ptx::st_async_v4(ptx::mapa_shared_cluster(address, lane()), *reinterpret_cast<const float4*>(&mine),
                       ptx::mapa_shared_cluster(ptx::shared_address(&shared.arrived[now]), lane()));
    }
    // The other CTAs' stores may have arrived already: the phase does not end before this arrival. CTAs that
    // have all of this exchange send the next one's to the other barrier.
    if (threadIdx.x == 0)
      ptx::mbarrier_arrive_expect_tx(&shared.arrived[now],
                                     n * kClusterSize * static_cast<int>(sizeof(Total)));
    ptx::mbarrier_wait(&shared.arrived[now], exchanges >> 1 & 1);
    ++exchanges;
    return shared.cta_totals[now][0];
  }

  // Adds up the warps' totals of n parts, lane j giving those of part j, and exchanges the sums. The warps'
  // own totals stay available in warp_total() until the next exchange but one.
  __device__ const Total* reduce(int n, WarpTotal mine) {
    WarpTotal(&warp_totals)[kWarps][kParts] = shared.warp_totals[exchanges & 1];
    if (lane() < n) warp_totals[warp()][lane()] = mine;
    __syncthreads();  // of_warps is complete
    Total sum;
    if (warp() < n) {
      const WarpTotal warp_total = warp_totals[lane() % kWarps][warp()];
      sum                        = {static_cast<double>(warp_total.weight), warp_total.count};
#pragma unroll
      for (int other = kWarps / 2; other > 0; other /= 2) {
        sum.weight += __shfl_xor_sync(~0u, sum.weight, other);
        sum.count += __shfl_xor_sync(~0u, sum.count, other);
      }
    }
    return exchange(n, sum);
  }
  __device__ WarpTotal warp_total(int w) const { return shared.warp_totals[(exchanges - 1) & 1][w][0]; }
};

// Adds a logit and its weight to a total, if the logit is at least `from`.
__device__ void add(WarpTotal& total, float logit, float weight, float from) {
  asm("{\n"
      ".reg .pred in;\n"
      "setp.ge.f32 in, %2, %3;\n"
      "@in add.f32 %0, %0, %4;\n"
      "@in add.s32 %1, %1, 1;\n"
      "}"
      : "+f"(total.weight), "+r"(total.count)
      : "f"(logit), "f"(from), "f"(weight));
}

__device__ WarpTotal shuffle(WarpTotal total, int source) {
  return {__shfl_sync(~0u, total.weight, source), __shfl_sync(~0u, total.count, source)};
}
__device__ WarpTotal add_lane(WarpTotal mine, WarpTotal theirs, int other) {
  return {mine.weight + __shfl_xor_sync(~0u, theirs.weight, other),
          mine.count + __shfl_xor_sync(~0u, theirs.count, other)};
}

// Totals over the row's logits that are at least `first`, for kParts values of `first`: lane j has that of
// part j % kParts. Counts the first `logits` of each lane in shared memory (every 32nd is a lane's), and adds
// `more` for the warp. Each half of the warp counts for half of the parts, because registers are short.
__device__ Parts totals(Row& row, int logits, float first, WarpTotal more) {
  constexpr int kHalf = 16, kOwn = kParts / 2;
  static_assert(kOwn == 4);
  float from[kOwn];
  WarpTotal own[kOwn];
#pragma unroll
  for (int j = 0; j < kOwn; ++j) from[j] = __shfl_sync(~0u, first, lane() / kHalf * kOwn + j);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int column = lane() % kHalf + half * kHalf;
    const int last   = __shfl_sync(~0u, logits, column) * 32;
#pragma unroll 4
    for (int i = 0; i < last; i += 32) {
      const float logit = row.slice[i + column], w = row.weight(logit);
#pragma unroll
      for (int j = 0; j < kOwn; ++j) add(own[j], logit, w, from[j]);
    }
  }
  // Reduces over the half warp, halving the parts of a lane at each step: in the end lane 4 j has part j.
  const bool upper = lane() & 8, later = lane() & 4;
  const WarpTotal a   = add_lane(upper ? own[2] : own[0], upper ? own[0] : own[2], 8);
  const WarpTotal b   = add_lane(upper ? own[3] : own[1], upper ? own[1] : own[3], 8);
  const WarpTotal c   = add_lane(later ? b : a, later ? a : b, 4);
  const WarpTotal two = add_lane(c, c, 2);
  Parts parts{.first = first, .warp_total = shuffle(add_lane(two, two, 1), lane() % kParts * 4)};
  parts.warp_total.weight += more.weight;
  parts.warp_total.count += more.count;

  const Total* cta_totals = row.reduce(kParts, parts.warp_total);
  constexpr int kGroups   = 32 / kParts;  // of lanes; each adds every kGroups-th CTA
#pragma unroll
  for (int b = lane() / kParts; b < kClusterSize; b += kGroups) {
    const Total cta_total = cta_totals[b * kParts + lane() % kParts];
    parts.row_total.weight += cta_total.weight;
    parts.row_total.count += cta_total.count;
  }
#pragma unroll
  for (int other = kParts; other < 32; other *= 2) {
    parts.row_total.weight += __shfl_xor_sync(~0u, parts.row_total.weight, other);
    parts.row_total.count += __shfl_xor_sync(~0u, parts.row_total.count, other);
  }
  return parts;
}

// The tokens that may be drawn: logits above the threshold `least`, and the first `ties` of those equal to
// it.
struct Allowed {
  float least = -INFINITY;
  int ties    = INT_MAX;

  __device__ Allowed and_of(const Allowed& other) const {
    if (least != other.least) return least > other.least ? *this : other;
    return {least, min(ties, other.ties)};
  }
  // Called in the order of ids; `left` counts the remaining ties down.
  __device__ bool holds(float logit, int& left) const {
    return logit > least || (logit == least && left-- > 0);
  }
};

// Copies the row to shared memory. Copies are visible to the lane that issued them once it has waited, and to
// the others after a __syncwarp().
__device__ void begin_copy(const Row& row) {
  for (int i = lane(); i < row.vectors; i += 32) ptx::cp_async_cg(row.slice + 4 * i, row.logits + i);
  ptx::cp_async_commit_group();
}
__device__ void end_copy() {
  ptx::cp_async_wait_group<0>();
  __syncwarp();
}

// The first division of a row, as natural logarithms of weights. Weights below the first are negligible; the
// thresholds of common distributions lie among the others.
__constant__ float kFirstLogWeights[kParts] = {-30.5f, -17, -12, -9, -6.5f, -4.5f, -2.5f, -1};

// The smallest set of the likeliest tokens that has at least `least_count` tokens and `share` of the weight
// `whole` (0: of all tokens); `whole` becomes the set's weight. The row is in shared memory; logits outside
// of the interval are dropped from there.
__device__ Allowed find_threshold(Row& row, int least_count, double share, double& whole) {
  constexpr int kAtOnce = 4;
  int logits            = (4 * row.vectors - lane() + 31) / 32;  // of this lane, in shared memory
  float cut =
      fmaxf(row.max_logit + kFirstLogWeights[lane() % kParts] * row.shared.rule.temperature, -FLT_MAX);
  Interval& in = row.shared.intervals[warp()];
  in           = {.end = nextafterf(row.max_logit, INFINITY)};
  while (true) {
    const Parts parts = totals(row, logits, cut, in.warp_from_end);
    if (whole == 0) whole = __shfl_sync(~0u, parts.row_total.weight, 0);
    in.narrow(parts, {share * whole, least_count});
    const float floor = in.floor, end = in.end;
    const double width = static_cast<double>(fminf(end, FLT_MAX)) - static_cast<double>(floor);
    cut                = static_cast<float>(floor + width * (lane() % kParts) / kParts);
    const bool parted =
        __any_sync(~0u, cut > floor && cut < end);  // else all remaining logits equal the floor
    if (in.from_floor.count - in.from_end.count <= 1 || !parted) break;

    int left = 0;
    for (int base = 0; base < logits; base += kAtOnce) {
      float logit[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        logit[i] = base + i < logits ? row.slice[32 * (base + i) + lane()] : -INFINITY;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (logit[i] >= floor && logit[i] < end) row.slice[32 * left++ + lane()] = logit[i];
    }
    logits = left;
    __syncwarp();  // lanes read what other lanes have written
  }
  const double wanted = whole;
  whole               = in.from_floor.weight;
  const int equals    = in.from_floor.count - in.from_end.count;
  if (equals <= 1) return {.least = in.floor};
  // Several logits, all equal to the floor.
  const double weight = row.weight(in.floor);
  const int by_weight =
      static_cast<int>(fmin(ceil((share * wanted - in.from_end.weight) / weight), 1.0 * equals));
  const int ties = max(1, max(by_weight, least_count - in.from_end.count));
  if (ties >= equals) return {.least = in.floor};
  whole = in.from_end.weight + ties * weight;
  return {.least = in.floor, .ties = ties};
}

// The tokens that a row's rule allows. Leaves the row in shared memory.
__device__ Allowed allowed_by_rule(Row& row, int vocabulary) {
  const SamplingRow& rule = row.shared.rule;
  Allowed allowed;
  double whole = 0;
  end_copy();
  if (rule.top_k > 0 && rule.top_k < vocabulary) {
    allowed = find_threshold(row, rule.top_k, 0, whole);
    begin_copy(row);
    end_copy();
  }
  if (rule.top_p < 1) {
    allowed = allowed.and_of(find_threshold(row, 0, rule.top_p, whole));
    begin_copy(row);
    end_copy();
  }
  if (rule.min_p > 0) {
    const double least = row.max_logit + rule.temperature * log(static_cast<double>(rule.min_p));
    allowed            = allowed.and_of({.least = __double2float_ru(least)});
  }
  return allowed;
}

// The sum over the lanes before this one.
template <class T>
__device__ T warp_exclusive_sum(T value) {
  const T before = __shfl_up_sync(~0u, warp_inclusive_sum(value, lane()), 1);
  return lane() == 0 ? 0 : before;
}

// The last lane of positive weight before which the lanes' weights sum to at most `target`; subtracts that
// sum. Some lane has positive weight.
__device__ int locate(double weight, double& target) {
  const double before = warp_exclusive_sum(weight);
  const int found     = 31 - __clz(static_cast<int>(__ballot_sync(~0u, weight > 0 && before <= target)));
  target -= __shfl_sync(~0u, before, found);
  return found;
}

// Draws an id among those allowed, by their weights. One warp of the cluster returns it, the others -1.
__device__ int draw(Row& row, const Allowed& allowed) {
  // A lane has a run of consecutive vectors, an odd number of them, so that the lanes access all banks.
  const int each  = (row.vectors + 31) / 32 | 1;
  const int first = min(each * lane(), row.vectors), last = min(first + each, row.vectors);
  const auto* vectors = reinterpret_cast<const float4*>(row.slice);

  int left = INT_MAX;  // remaining ties, from this lane on
  if (allowed.ties < INT_MAX) {
    int equals = 0;
    for (int i = first; i < last; ++i)
      for (int c = 0; c < 4; ++c) equals += at(vectors[i], c) == allowed.least;
    const Total* cta_totals = row.reduce(1, {0, __reduce_add_sync(~0u, equals)});
    int before              = warp_exclusive_sum(equals);
    for (int b = 0; b < cta_rank(); ++b) before += cta_totals[b * kParts].count;
    for (int w = 0; w < warp(); ++w) before += row.warp_total(w).count;
    left = allowed.ties - before;
  }

  const int left_of_lane = left;
  float weight           = 0;
  for (int i = first; i < last; ++i) {
    const float4 v = vectors[i];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float logit = at(v, c);
      const bool holds  = allowed.ties == INT_MAX ? logit >= allowed.least : allowed.holds(logit, left);
      weight += holds ? row.weight(logit) : 0;
    }
  }
  const Total* cta_totals = row.reduce(1, {warp_reduce_sum(weight), 0});
  const double cta_total  = lane() < kClusterSize ? cta_totals[lane() * kParts].weight : 0;
  double target = uniform(row.shared.rule.seed, row.shared.rule.position) * warp_reduce_sum(cta_total);
  if (locate(cta_total, target) != cta_rank()) return -1;
  if (locate(lane() < kWarps ? row.warp_total(lane()).weight : 0, target) != warp()) return -1;

  // The located lane's tokens, 4 for each lane; with 2^18 tokens it has 68.
  const int owner = locate(weight, target);
  const int mine  = __shfl_sync(~0u, first, owner) + lane();
  const float4 v  = mine < __shfl_sync(~0u, last, owner) ? vectors[mine] : kNoLogits;
  int equals      = 0;
  for (int c = 0; c < 4; ++c) equals += at(v, c) == allowed.least;
  left = __shfl_sync(~0u, left_of_lane, owner) - warp_exclusive_sum(equals);
  float w[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) w[c] = allowed.holds(at(v, c), left) ? row.weight(at(v, c)) : 0;
  const int owner_lane = locate(w[0] + w[1] + w[2] + w[3], target);
  int found            = 0;
  float before         = 0;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (w[c] > 0 && before <= target) found = 4 * mine + c;
    before += w[c];
  }
  return row.begin + __shfl_sync(~0u, found, owner_lane);
}

// The warp's likeliest token: its logit's key (2^32 - 1 if some logit is NaN) in the upper half, and V - 1 -
// id in the lower half.
__device__ uint64_t warp_argmax(const Row& row, int vocabulary) {
  float max_logit = -INFINITY;
  int where       = 0;
  float4 best     = {};
  for (int base = lane(); base < row.vectors; base += 32 * kLoads) {
    float4 v[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      v[i] = base + 32 * i < row.vectors ? row.logits[base + 32 * i] : kNoLogits;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float m = max_or_nan(max_or_nan(v[i].x, v[i].y), max_or_nan(v[i].z, v[i].w));
      if (m > max_logit) {
        where = base + 32 * i;
        best  = v[i];
      }
      max_logit = max_or_nan(max_logit, m);
    }
  }
  const int c          = best.x == max_logit ? 0 : best.y == max_logit ? 1 : best.z == max_logit ? 2 : 3;
  const uint32_t mine  = radix_key(max_logit);
  const uint32_t key   = __reduce_max_sync(~0u, mine);
  const uint32_t after = vocabulary - 1 - (row.begin + 4 * where + c);  // number of tokens after it
  return uint64_t{key} << 32 | __reduce_max_sync(~0u, mine == key ? after : 0u);
}

// The same for the sums of logit / temperature and a Gumbel number.
__device__ uint64_t warp_argmax_perturbed(const Row& row, const SamplingRow& rule, int vocabulary) {
  // Above the error of lg2.approx and of the sums beside it, for sums below 2^12.
  constexpr float kMargin = 0.01f;
  constexpr int kAtOnce   = 4;
  const float inverse     = 1 / rule.temperature;
  uint64_t best           = 0;
  float least = -INFINITY, not_finite = 0;  // a lower bound of the warp's best sum; NaN if a logit is
  for (int base = 0; base < row.vectors; base += 32 * kAtOnce) {
    float4 v[kAtOnce];
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at_lane = base + 32 * i + lane();
      v[i]              = at_lane < row.vectors ? row.logits[at_lane] : kNoLogits;
      most = max_or_nan(most, max_or_nan(max_or_nan(v[i].x, v[i].y), max_or_nan(v[i].z, v[i].w)));
    }
    not_finite = max_or_nan(not_finite, most);
    // The largest logit's sum is at least -ln(-ln 2^-33) = -3.14 above it: a bound before any number.
    const float bound = __fmaf_rn(most, inverse, -3.2f);
    least             = fmaxf(least, bound - 0x1p-20f * fabsf(bound));
#pragma unroll
    for (int other = 16; other > 0; other /= 2) least = fmaxf(least, __shfl_xor_sync(~0u, least, other));
    const float needed = least - kMargin - 0x1p-20f * fabsf(least);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float top = fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w));
      if (__fmaf_rn(top, inverse, kMostGumbel) < needed || top == -INFINITY) continue;
      const int vector     = row.begin / 4 + base + 32 * i + lane();
      const uint4 words    = gumbel_words(rule, vector);
      const uint32_t of[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float most_noise = -0.693147181f * __log2f(rest_of(of[c]));
        if (!(__fmaf_rn(at(v[i], c), inverse, most_noise) >= needed)) continue;
        const float sum      = perturbed(at(v[i], c), inverse, gumbel(of[c]));
        const uint32_t after = vocabulary - 1 - (4 * vector + c);
        best                 = max(best, uint64_t{radix_key(sum)} << 32 | after);
        least                = fmaxf(least, sum);
      }
    }
  }
  if (isnan(not_finite)) best = uint64_t{~0u} << 32;
#pragma unroll
  for (int other = 16; other > 0; other /= 2)
    best = max(best, static_cast<uint64_t>(__shfl_xor_sync(~0u, best, other)));
  return best;
}

// One row for each cluster.
__global__ void __launch_bounds__(kThreads, 2)
    sample_kernel(const float* logits, const SamplingRow* rules, int32_t* sampled, int vocabulary,
                  int vectors_per_warp) {
  extern __shared__ __align__(16) char memory[];
  Shared& shared  = *reinterpret_cast<Shared*>(memory);
  const int64_t r = blockIdx.x / kClusterSize;
  if (rules[r].place < 0) return ptx::griddepcontrol_wait();

  if (threadIdx.x == 0) {
    shared.rule = rules[r];
    for (uint64_t& barrier : shared.arrived) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  ptx::cluster_barrier_arrive();  // the other CTAs may store here once they have waited

  const int first = min((cta_rank() * kWarps + warp()) * vectors_per_warp, vocabulary / 4);
  Row row{.shared  = shared,
          .logits  = reinterpret_cast<const float4*>(logits + r * vocabulary) + first,
          .slice   = reinterpret_cast<float*>(memory + sizeof(Shared)) + 4 * warp() * vectors_per_warp,
          .begin   = 4 * first,
          .vectors = min(vectors_per_warp, vocabulary / 4 - first)};
  const bool from_all  = draws_from_all(rules[r], vocabulary),
             is_random = rules[r].temperature > 0 && !from_all;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  if (is_random) begin_copy(row);
  const uint64_t warp_total =
      from_all ? warp_argmax_perturbed(row, rules[r], vocabulary) : warp_argmax(row, vocabulary);
  if (lane() == 0) shared.bests[warp()] = warp_total;
  __syncthreads();              // bests and rule are complete; the barriers are initialised
  ptx::cluster_barrier_wait();  // in the other CTAs too
  uint64_t likeliest = 0;
  if (warp() == 0)
    for (const uint64_t best : shared.bests) likeliest = max(likeliest, best);
  const Total* cta_totals = row.exchange(1, {__longlong_as_double(static_cast<long long>(likeliest)), 0});
  for (int b = 0; b < kClusterSize; ++b)
    likeliest = max(likeliest, static_cast<uint64_t>(__double_as_longlong(cta_totals[b * kParts].weight)));

  const SamplingRow& rule = shared.rule;
  const auto key          = static_cast<uint32_t>(likeliest >> 32);
  const bool possible     = key > radix_key(-INFINITY) && key < radix_key(INFINITY);
  int32_t& id             = sampled[rule.place];
  if (!possible || !is_random) {
    if (is_random) end_copy();  // copies must have arrived before the CTA exits
    if (cta_rank() == 0 && threadIdx.x == 0)
      id = possible ? vocabulary - 1 - static_cast<int32_t>(static_cast<uint32_t>(likeliest)) : -1;
    return;
  }
  row.max_logit         = radix_key_value(key);
  row.scale             = fminf(1.44269504f / rule.temperature, FLT_MAX);  // finite, so that times 0 it is 0
  const Allowed allowed = allowed_by_rule(row, vocabulary);
  const int drawn       = draw(row, allowed);
  if (drawn >= 0 && lane() == 0) id = drawn;
}

int shared_bytes(int64_t vectors_per_warp) {
  return static_cast<int>(sizeof(Shared) + kWarps * vectors_per_warp * 16);
}

}  // namespace

void sample_tokens(View<const float, 2> logits, View<const SamplingRow, 1> rules, View<int32_t, 1> sampled,
                   StreamRef stream) {
  const int64_t rows = logits.extent(0), vocabulary = logits.extent(1);
  FATHOM_EXPECT(rules.extent(0) == rows && logits.contiguous() && rules.contiguous() && sampled.contiguous(),
                "sample_tokens: logits are [R, V], rules [R], row after row");
  if (rows == 0) return;
  FATHOM_EXPECT(vocabulary > 0 && vocabulary % 4 == 0 && vocabulary <= kMaxVocabulary &&
                    rows <= INT32_MAX / kClusterSize && reinterpret_cast<uintptr_t>(logits.data()) % 16 == 0,
                "sample_tokens: rows of at max_logit 2^18 logits, whole vectors of 16 bytes");
  allow_shared_memory_once<sample_kernel>(shared_bytes(kMaxVocabulary / 4 / kClusterSize / kWarps));
  const auto vectors_per_warp = static_cast<int>(blocks_for(vocabulary / 4, kClusterSize * kWarps));
  launch_with_pdl(sample_kernel, dim3(static_cast<unsigned>(rows * kClusterSize)), dim3(kThreads),
                  static_cast<size_t>(shared_bytes(vectors_per_warp)), kClusterSize, stream, logits.data(),
                  rules.data(), sampled.data(), static_cast<int>(vocabulary), vectors_per_warp);
}

}  // namespace fathom::kernels
