// argmax_v score(W x) by two kernels (kernels/sampling/screened_argmax.h has the math and the bytes).
//
// screen    As linear_gemv for many rows of weights: a CTA has 64 rows at a time and all of K, a warp every
//           eighth 64 columns. int8 becomes fp16 by two instructions for two numbers: PRMT puts q + 128 below
//           the exponent of 1024, where it counts ones, and a subtraction of 1152 leaves q, exactly. x
//           becomes fp16 as well, multiplied by a power of two: what is lost below fp16's smallest number is
//           2^-39 of its norm. Sums are in fp32. Each CTA raises the rows' L.
// rescore   A CTA looks through its part of the upper bounds, and computes the groups of 16 rows in which one
//           is not below L, by the strips and the order of linear_gemv. The last CTA that ends stores the
//           ids.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/radix_key.cuh"
#include "cuda/warp_reduce.cuh"
#include "kernels/alignment.h"
#include "kernels/gemm/linear_gemv.cuh"
#include "kernels/sampling/gumbel.cuh"
#include "kernels/sampling/screened_argmax.h"

namespace fathom::kernels {
namespace {

using namespace gemv;

constexpr int kScreenWarps   = kFullKWarps;
constexpr int kScreenThreads = 32 * kScreenWarps;
constexpr int kRows          = static_cast<int>(kMaxGemvRows);
constexpr int kInt8TileBytes = static_cast<int>(ScreeningWeights::kTileBytes);
constexpr int kGroupInt8 = kInt8TileBytes / kTileGroups, kHalfInt8 = kGroupInt8 / 2;

// ---- packing ----

// A CTA has 16 rows.
__global__ void __launch_bounds__(kScreenThreads)
    pack_screening_kernel(const uint4* w, int across, uint8_t* tiles, float* scales, float* errors) {
  __shared__ uint32_t largest[16];   // as bits, which for numbers of at least 0 have their order
  __shared__ double squares[2][16];  // of the errors, and of the weights
  const int thread = static_cast<int>(threadIdx.x), group = static_cast<int>(blockIdx.x);
  if (thread < 16) largest[thread] = 0, squares[0][thread] = squares[1][thread] = 0;
  __syncthreads();
  // Piece i of the rows: a lane's fragment of a step of 16 columns, rows g and g + 8.
  const int g = thread % 32 / 4, pieces = across * 4 * 32;
  const auto piece = [&](int i) {
    const int64_t tile = int64_t{group / kTileGroups} * across + i / 128;
    return w[(tile * kTileGroups + group % kTileGroups) * 128 + i % 128];
  };
  const auto number = [](const uint4& v,
                         int i) {  // of register i / 2: row g for even ones, g + 8 for odd ones
    const uint32_t word = i / 2 == 0 ? v.x : i / 2 == 1 ? v.y : i / 2 == 2 ? v.z : v.w;
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000);
  };
  uint32_t most[2] = {};
  for (int i = thread; i < pieces; i += kScreenThreads) {
    const uint4 v = piece(i);
#pragma unroll
    for (int j = 0; j < 8; ++j) most[j / 2 % 2] = max(most[j / 2 % 2], __float_as_uint(fabsf(number(v, j))));
  }
  atomicMax(&largest[g], most[0]);
  atomicMax(&largest[g + 8], most[1]);
  __syncthreads();  // the largest numbers are known
  const auto scale_of = [&](int row) {
    const float of_row = __uint_as_float(largest[row]);
    return of_row < INFINITY ? of_row / 127 : 0.0f;
  };
  const float scale[2] = {scale_of(g), scale_of(g + 8)};
  double sums[2][2]    = {};
  for (int i = thread; i < pieces; i += kScreenThreads) {
    const uint4 v    = piece(i);
    uint32_t word[2] = {};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int row    = j / 2 % 2;
      const float x    = number(v, j);
      const float q    = scale[row] > 0 ? fminf(fmaxf(rintf(x / scale[row]), -127), 127) : 0;
      const double off = static_cast<double>(x) - static_cast<double>(scale[row]) * static_cast<double>(q);
      sums[0][row] += off * off;
      sums[1][row] += static_cast<double>(x) * static_cast<double>(x);
      word[j / 4] |= (static_cast<uint32_t>(static_cast<int>(q) + 128) & 255) << (j % 4 * 8);
    }
    const int64_t tile = int64_t{group / kTileGroups} * across + i / 128;
    const int step = i % 128 / 32, lane = i % 32;
    *reinterpret_cast<uint2*>(tiles + tile * kInt8TileBytes + group % kTileGroups * kGroupInt8 +
                              step / 2 * kHalfInt8 + lane * 16 + step % 2 * 8) = {word[0], word[1]};
  }
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int row = 0; row < 2; ++row) atomicAdd(&squares[k][g + 8 * row], sums[k][row]);
  __syncthreads();  // all squares are added
  if (thread >= 16) return;
  scales[group * 16 + thread] = scale_of(thread);
  // The factor is for the rounding of these lines and of the norm of x.
  const double error = 1.001 * (sqrt(squares[0][thread]) + 0x1p-13 * sqrt(squares[1][thread]));
  errors[group * 16 + thread] =
      __uint_as_float(largest[thread]) < INFINITY ? __double2float_ru(error) : INFINITY;
}

// ---- screening ----

struct Screen {
  Product product;  // of W
  ScreeningWeights weights;
  const SamplingRow* rules;
  float* upper;
  int64_t vocabulary;
  ScreenedArgmaxState* state;
};

// What a row's rule makes of y(v): y itself, or y / temperature + G(v).
class Score {
 public:
  __device__ explicit Score(const SamplingRow& rule)
      : rule_(rule), is_random_(rule.temperature > 0), inverse_(is_random_ ? 1 / rule.temperature : 1) {}

  // Of which the exact ones, and those of bounds, are made.
  __device__ float gumbel_number(int64_t v) const {
    if (!is_random_) return 0;
    const uint4 words = gumbel_words(rule_, static_cast<int>(v / 4));
    return gumbel(v % 4 == 0 ? words.x : v % 4 == 1 ? words.y : v % 4 == 2 ? words.z : words.w);
  }
  __device__ float operator()(float y, int64_t v) const {
    return is_random_ ? perturbed(y, inverse_, gumbel_number(v)) : y;
  }
  struct Bounds {
    float lower, upper;
  };
  // Of the scores of y - b to y + b. NaN where b is.
  __device__ Bounds bounds(float y, float b, int64_t v) const {
    const float g = gumbel_number(v), middle = __fmaf_rn(y, inverse_, g);
    const float off =
        __fadd_ru(__fmul_ru(b, inverse_), is_random_ ? 0x1p-20f * (fabsf(middle) + fabsf(g)) : 0);
    return {__fsub_rd(middle, off), __fadd_ru(middle, off)};
  }

 private:
  const SamplingRow& rule_;
  bool is_random_;
  float inverse_;
};

// Two numbers of a word of q + 128, as fp16: bytes 0 and 1, or 2 and 3.
__device__ uint32_t fp16_pair(uint32_t word, int pair) {
  const uint32_t above_1024 = __byte_perm(word, 0x64646464, pair == 0 ? 0x4140 : 0x4342);
  const __half2 q =
      __hsub2(reinterpret_cast<const __half2&>(above_1024), __half2half2(__ushort_as_half(0x6480)));
  return reinterpret_cast<const uint32_t&>(q);
}

__device__ void mma_fp16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ float2 bf16_pair(uint32_t word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000)};
}

// CTAs iterate over rows of tiles, as many CTAs as the GPU has room for: each makes x once.
constexpr int kScreenCtasPerSm = 3;

__global__ void __launch_bounds__(kScreenThreads, kScreenCtasPerSm)
    screen_kernel(const __grid_constant__ Screen o) {
  extern __shared__ uint4 shared[];
  __shared__ float squares[kScreenWarps][kRows], norms[kRows];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y),
            thread = warp * 32 + lane;
  const int tiles = o.product.depth / static_cast<int>(kTile), rows = o.product.rows;

  // The warp has tiles warp, warp + kScreenWarps, .. of a row of tiles.
  const uint8_t* next = nullptr;
  uint4 weights[kTileGroups][2];
  const auto load = [&](int g) {
    weights[g][0] = ptx::ld_global_nc_no_allocate(next + g * kGroupInt8);
    weights[g][1] = ptx::ld_global_nc_no_allocate(next + g * kGroupInt8 + kHalfInt8);
  };
  const auto load_first = [&](int tile_row) {
    if (tile_row >= o.product.tile_rows || warp >= tiles) return;
    next = o.weights.tiles + (int64_t{tile_row} * tiles + warp) * kInt8TileBytes + lane * 16;
#pragma unroll
    for (int g = 0; g < kTileGroups; ++g) load(g);
  };
  int tile_row = static_cast<int>(blockIdx.x);
  load_first(tile_row);
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  const int pieces = o.product.depth / 8, stride = pieces + 1;
  const SharedRows x(shared, pieces);
  x.load<kScreenThreads>(o.product, 0, thread);
  for (int t = 0; t < rows; ++t) {
    float sum = 0;
    for (int p = thread; p < pieces; p += kScreenThreads) {
      const uint4 v = shared[t * stride + p];
      for (const uint32_t word : {v.x, v.y, v.z, v.w}) {
        const float2 two = bf16_pair(word);
        sum += two.x * two.x + two.y * two.y;
      }
    }
    sum = warp_reduce_sum(sum);
    if (lane == 0) squares[warp][t] = sum;
  }
  __syncthreads();  // all squares are there
  if (thread < rows) {
    float sum = 0;
    for (int w = 0; w < kScreenWarps; ++w) sum += squares[w][thread];
    // NaN, so that no v of the row is ruled out, where squares may have been lost.
    norms[thread] = sum > 0x1p-100f && sum < 0x1p120f ? sqrtf(sum) : NAN;
  }
  __syncthreads();  // the norms are there
  // The power of two by which a row is multiplied: its norm becomes 2^14 to 2^15.
  const auto factor = [](float norm) { return isnan(norm) ? 1.0f : scalbnf(1.0f, 14 - ilogbf(norm)); };
  for (int t = 0; t < rows; ++t) {
    const float by = factor(norms[t]);
    for (int p = thread; p < pieces; p += kScreenThreads) {
      uint4 v            = shared[t * stride + p];
      const auto convert = [&](uint32_t& word) {
        const float2 two   = bf16_pair(word);
        const __half2 half = __floats2half2_rn(two.x * by, two.y * by);
        word               = reinterpret_cast<const uint32_t&>(half);
      };
      convert(v.x), convert(v.y), convert(v.z), convert(v.w);
      shared[t * stride + p] = v;
    }
  }
  __syncthreads();  // x is in fp16

  // Warp w adds up the warps' sums of group w % 4, of one row of x a lane.
  const int group = warp % kTileGroups, t = lane % 4 * 2 + warp / kTileGroups;
  static_assert(kScreenWarps == 2 * kTileGroups);
  const float norm = t < rows ? norms[t] : 0, by = factor(norm);
  const Score score(o.rules[min(t, rows - 1)]);
  float least           = -INFINITY;
  const uint32_t x_from = x.address(rows, 2 * warp, lane);
  auto* sums            = reinterpret_cast<float4*>(x.end(rows));  // [kScreenWarps][kTileGroups][kSums]
  for (; tile_row < o.product.tile_rows; tile_row += static_cast<int>(gridDim.x)) {
    uint32_t x_at             = x_from;
    float sum[kTileGroups][4] = {};
    for (int tile = warp; tile < tiles; tile += kScreenWarps) {
      uint32_t columns[2][4];
      ptx::ldmatrix_x4(columns[0], x_at);
      ptx::ldmatrix_x4(columns[1], x_at + kStrip * 2);
      x_at += kScreenWarps * 2 * kStrip * 2;
      next += kScreenWarps * kInt8TileBytes;
#pragma unroll
      for (int g = 0; g < kTileGroups; ++g) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 v           = weights[g][half];
          const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
          for (int s = 0; s < 2; ++s)
            mma_fp16(sum[g],
                     {fp16_pair(words[2 * s], 0), fp16_pair(words[2 * s], 1), fp16_pair(words[2 * s + 1], 0),
                      fp16_pair(words[2 * s + 1], 1)},
                     columns[half][2 * s], columns[half][2 * s + 1]);
        }
        if (tile + kScreenWarps < tiles) load(g);
      }
    }
    load_first(tile_row + static_cast<int>(gridDim.x));

#pragma unroll
    for (int g = 0; g < kTileGroups; ++g)
      sums[(warp * kTileGroups + g) * kSums + lane] = {sum[g][0], sum[g][1], sum[g][2], sum[g][3]};
    __syncthreads();  // all sums are in shared memory
    const float* of_lane = reinterpret_cast<const float*>(sums + group * kSums + lane) + warp / kTileGroups;
    float total[2]       = {};
#pragma unroll
    for (int w = 0; w < kScreenWarps; ++w)
#pragma unroll
      for (int half = 0; half < 2; ++half) total[half] += of_lane[w * kTileGroups * kSums * 4 + 2 * half];
    __syncthreads();  // the sums have been read
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t v = (int64_t{tile_row} * kTileGroups + group) * 16 + lane / 4 + 8 * half;
      if (t >= rows || v >= o.vocabulary) continue;
      const auto bounds = score.bounds(total[half] / by * o.weights.scales[v], o.weights.errors[v] * norm, v);
      o.upper[t * o.vocabulary + v] = bounds.upper;
      if (bounds.lower < INFINITY) least = fmaxf(least, bounds.lower);
    }
  }
#pragma unroll
  for (int other = 4; other < 32; other *= 2) least = fmaxf(least, __shfl_xor_sync(~0u, least, other));
  if (lane < 4 && t < rows) atomicMax(&o.state->least[t], radix_key(least));
}

// ---- rescoring ----

struct Rescore {
  Product product;
  const float* upper;
  int64_t vocabulary;
  ScreenedArgmaxState* state;
  const SamplingRow* rules;
  int32_t* sampled;
};

constexpr int kGroupsAtOnce = 64;

__global__ void __launch_bounds__(kScreenThreads, 2) rescore_kernel(const __grid_constant__ Rescore o) {
  extern __shared__ uint4 shared[];
  __shared__ float4 sums[kScreenWarps][kSums];
  __shared__ int wanted[kGroupsAtOnce];
  __shared__ bool is_last;
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y),
            thread = warp * 32 + lane;
  const int rows = o.product.rows, strips = o.product.depth / kStrip;
  const int groups = static_cast<int>((o.vocabulary + 15) / 16);
  const int begin  = static_cast<int>(int64_t{blockIdx.x} * groups / gridDim.x);
  const int end    = static_cast<int>((int64_t{blockIdx.x} + 1) * groups / gridDim.x);
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const SharedRows x(shared, o.product.depth / 8);
  x.load<kScreenThreads>(o.product, 0, thread);
  const uint32_t x_at = x.address(rows, warp, lane);

  for (int first = begin; first < end; first += kGroupsAtOnce) {
    const int count = min(kGroupsAtOnce, end - first);
    if (thread < kGroupsAtOnce) wanted[thread] = 0;
    __syncthreads();  // `wanted` is clear
    for (int t = 0; t < rows; ++t) {
      if (o.rules[t].place < 0) continue;
      const uint32_t key = __ldcg(&o.state->least[t]);
      const float least  = key == 0 ? -INFINITY : radix_key_value(key);
      for (int i = thread; i < count * 16; i += kScreenThreads) {
        const int64_t v = int64_t{first} * 16 + i;
        // What is not a number may be anything.
        if (v < o.vocabulary && !(__ldcg(o.upper + t * o.vocabulary + v) < least)) wanted[i / 16] = 1;
      }
    }
    __syncthreads();  // `wanted` is complete
    for (int i = 0; i < count; ++i) {
      if (!wanted[i]) continue;
      const int group = first + i;
      float sum[4]    = {};
#pragma unroll 6
      for (int strip = warp; strip < strips; strip += kScreenWarps) {
        Strip weights;
        weights.load(o.product.strip(group / kTileGroups, group % kTileGroups, strip, lane));
        uint32_t columns[4];
        ptx::ldmatrix_x4(columns, x_at + (strip - warp) * (kStrip * 2));
        weights.multiply(columns, sum);
      }
      sums[warp][lane] = {sum[0], sum[1], sum[2], sum[3]};
      __syncthreads();  // all sums are in shared memory
      if (warp == 0) {
        float4 total = {};
#pragma unroll
        for (int w = 0; w < kScreenWarps; ++w) {
          const float4 part = sums[w][lane];
          total.x += part.x, total.y += part.y, total.z += part.z, total.w += part.w;
        }
#pragma unroll
        for (int next_row = 0; next_row < 2; ++next_row) {
          const int t   = lane % 4 * 2 + next_row;
          uint64_t best = 0;
          const Score score_of(o.rules[min(t, rows - 1)]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int64_t v    = int64_t{group} * 16 + lane / 4 + 8 * half;
            const float y      = 0.0f + (half == 0 ? (next_row == 0 ? total.x : total.y)
                                                   : (next_row == 0 ? total.z : total.w));  // as LinearEpilogue
            const float score  = score_of(y, v);
            const uint32_t key = isnan(score) ? ~0u : radix_key(score);
            if (v < o.vocabulary)
              best = max(best, uint64_t{key} << 32 | static_cast<uint32_t>(o.vocabulary - 1 - v));
          }
#pragma unroll
          for (int other = 4; other < 32; other *= 2)
            best = max(best, static_cast<uint64_t>(__shfl_xor_sync(~0u, best, other)));
          if (lane < 4 && t < rows)
            atomicMax(reinterpret_cast<unsigned long long*>(&o.state->best[t]),
                      static_cast<unsigned long long>(best));
        }
      }
      __syncthreads();  // the sums have been read
    }
  }

  if (thread == 0) {
    __threadfence();  // this CTA's maxima come before its arrival
    is_last = atomicInc(&o.state->ctas_done, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();  // is_last is known
  if (!is_last || thread >= rows) return;
  __threadfence();  // the other CTAs' maxima are visible
  const uint64_t best = __ldcg(&o.state->best[thread]);
  const auto key      = static_cast<uint32_t>(best >> 32);
  const bool possible = key > radix_key(-INFINITY) && key < radix_key(INFINITY);
  const int place     = o.rules[thread].place;
  if (place >= 0)
    o.sampled[place] =
        possible ? static_cast<int32_t>(o.vocabulary - 1) - static_cast<int32_t>(static_cast<uint32_t>(best))
                 : -1;
  o.state->best[thread]  = 0;
  o.state->least[thread] = 0;
}

}  // namespace

void pack_screening_weights(const PackedMatrix& w, uint8_t* tiles, float* scales, float* errors,
                            StreamRef stream) {
  FATHOM_EXPECT(w.rows % kTile == 0 && w.depth % kTile == 0 && w.bias == nullptr,
                "pack_screening_weights: packed weights without a bias");
  if (w.rows == 0) return;
  pack_screening_kernel<<<static_cast<unsigned>(w.rows / 16), kScreenThreads, 0, stream>>>(
      reinterpret_cast<const uint4*>(w.tiles), static_cast<int>(w.depth / kTile), tiles, scales, errors);
  FATHOM_LAUNCHED();
}

void screened_argmax(View<const bf16, 2> x, const PackedMatrix& w, const ScreeningWeights& screening,
                     View<const SamplingRow, 1> rules, View<float, 2> upper, ScreenedArgmaxState* state,
                     View<int32_t, 1> sampled, StreamRef stream) {
  const int64_t T = x.extent(0), V = upper.extent(1);
  FATHOM_EXPECT(T >= 1 && T <= kMaxGemvRows && x.extent(1) == w.depth && x.stride(1) == 1 &&
                    x.stride(0) % 8 == 0 && aligned_to_16(x.data()),
                "screened_argmax: x is [T, K], T from 1 to 8, rows 16-byte aligned");
  FATHOM_EXPECT(w.rows >= kFullKRows && w.rows < 1 << 24 && w.depth % kTile == 0 && w.depth > 0 &&
                    w.depth < 1 << 16 && w.bias == nullptr,
                "screened_argmax: weights of whole tiles, at least kFullKRows rows, without a bias");
  FATHOM_EXPECT(
      screening.rows == w.rows && screening.depth == w.depth && rules.extent(0) == T && rules.contiguous() &&
          upper.extent(0) == T && upper.contiguous() && padded(V) == w.rows && sampled.contiguous(),
      "screened_argmax: the copy has the shape of w, rules are [T], upper [T, rows without padding]");
  const Product product{x.data(),
                        x.stride(0),
                        static_cast<int>(T),
                        w.tiles,
                        static_cast<int>(w.rows / kTile),
                        static_cast<int>(w.depth)};
  constexpr int kMaxShared = 100 << 10, kSumBytes = kScreenWarps * kTileGroups * kSums * int{sizeof(float4)};
  const int64_t x_bytes = shared_bytes_of_x(T, w.depth);
  FATHOM_EXPECT(x_bytes + kSumBytes <= kMaxShared, "screened_argmax: x must fit shared memory");
  allow_shared_memory_once<screen_kernel>(kMaxShared);
  allow_shared_memory_once<rescore_kernel>(kMaxShared);
  launch_with_pdl(
      screen_kernel,
      dim3(static_cast<unsigned>(std::min(product.tile_rows, kScreenCtasPerSm * multiprocessors()))),
      dim3(32, kScreenWarps), static_cast<size_t>(x_bytes + kSumBytes), stream,
      Screen{product, screening, rules.data(), upper.data(), V, state});
  launch_with_pdl(rescore_kernel, dim3(static_cast<unsigned>(2 * multiprocessors())), dim3(32, kScreenWarps),
                  static_cast<size_t>(x_bytes), stream,
                  Rescore{product, upper.data(), V, state, rules.data(), sampled.data()});
}

}  // namespace fathom::kernels
