// The same attention, and the moves of a step: pages from bf16 to FP8 and from FP8 to NVFP4
//
// bytes   those of `mixed`, and 39 KB for each head of a page that moves down from each format
// limit   DRAM bandwidth
// idea    a sequence fills a page in 64 steps, and two of its pages move then: S / 64 pages from each format
// a step.
//         Eight lanes have a row of 64 numbers, eight each; lanes i and i + 4 share a block and its scale
#include "cache.h"
#include "cuda/check.h"
#include "cuda/ptx.cuh"

namespace fathom::lab::dynamic_quantized_cache {
namespace {

using namespace kernels;

constexpr int kThreads = 256, kLanes = 8;         // of a row
constexpr int kRows = 2 * kPage;                  // keys, then values, of a head
constexpr int kCtas = kRows * kLanes / kThreads;  // for a head of a page

struct Eight {
  float at[8];
};

__device__ uint32_t block_largest(const Eight& v) {
  uint32_t largest = 0;
#pragma unroll
  for (const float x : v.at) largest = max(largest, __float_as_uint(x) & 0x7fffffffu);
  return max(largest, __shfl_xor_sync(~0u, largest, 4));
}

__device__ Eight from_bf16(const bf16* tile, int r, int i) {
  const uint4 v         = *reinterpret_cast<const uint4*>(tile + Bf16KvPages::at(r, 8 * i));
  const uint32_t two[4] = {v.x, v.y, v.z, v.w};
  Eight numbers;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    numbers.at[2 * j]     = __uint_as_float(two[j] << 16);
    numbers.at[2 * j + 1] = __uint_as_float(two[j] & 0xffff0000u);
  }
  return numbers;
}

__device__ void to_fp8(uint8_t* strips, int r, bool value, int i, const Eight& v) {
  const uint32_t byte = Fp8KvPages::scale_of(block_largest(v));
  const float unit    = 1 / Fp8KvPages::scale(byte);
  uint32_t pairs[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) pairs[j] = ptx::cvt_e4m3x2(v.at[2 * j] * unit, v.at[2 * j + 1] * unit);
  uint8_t* const codes             = strips + Fp8KvPages::at(r, 8 * i) + (value ? Fp8KvPages::kCodeBytes : 0);
  *reinterpret_cast<uint2*>(codes) = {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
  if (i < 4)
    strips[Fp8KvPages::scale_at(r, 8 * i) + (value ? Fp8KvPages::kScaleBytes : 0)] =
        static_cast<uint8_t>(byte);
}

__device__ Eight from_fp8(const uint8_t* strips, int r, bool value, int i) {
  const uint2 codes = *reinterpret_cast<const uint2*>(strips + Fp8KvPages::at(r, 8 * i) +
                                                      (value ? Fp8KvPages::kCodeBytes : 0));
  const float scale =
      Fp8KvPages::scale(strips[Fp8KvPages::scale_at(r, 8 * i) + (value ? Fp8KvPages::kScaleBytes : 0)]);
  Eight numbers;
#pragma unroll
  for (int j = 0; j < 8; ++j)
    numbers.at[j] =
        static_cast<float>(fp8_e4m3::from_bits((j < 4 ? codes.x : codes.y) >> 8 * (j % 4) & 255)) * scale;
  return numbers;
}

__device__ void to_fp4(uint8_t* strips, int r, bool value, int i, const Eight& v) {
  const uint32_t byte = Nvfp4KvPages::scale_of(block_largest(v));
  const float unit    = 1 / Fp8KvPages::scale(byte);
  uint32_t codes      = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) codes |= uint32_t{fp4_e2m1(v.at[j] * unit).bits} << 4 * j;
  *reinterpret_cast<uint32_t*>(strips + Nvfp4KvPages::at(r, value, 8 * i)) = codes;
  if (i < 4) strips[Nvfp4KvPages::scale_at(r, value, 8 * i)] = static_cast<uint8_t>(byte);
}

struct Moves {
  Bf16KvPages in_bf16;
  Fp8KvPages in_fp8;
  const int32_t *bf16_page, *fp8_page;  // of the block table
  uint8_t* to;                          // kKvHeads in FP8, then in NVFP4
};

// Grid: (CTAs of a head, key-value heads).
__global__ void __launch_bounds__(kThreads) requantize_kernel(const Moves o) {
  const int at = blockIdx.x * kThreads + threadIdx.x, row = at / kLanes, i = at % kLanes;
  const int r = row % kPage, head = blockIdx.y, bf16_page = *o.bf16_page, fp8_page = *o.fp8_page;
  const bool value = row >= kPage;
  to_fp8(o.to + head * kFp8Bytes, r, value, i,
         from_bf16(value ? o.in_bf16.values(bf16_page, head) : o.in_bf16.keys(bf16_page, head), r, i));
  to_fp4(o.to + kKvHeads * kFp8Bytes + head * kFp4Bytes, r, value, i,
         from_fp8(o.in_fp8.strips(fp8_page, head), r, value, i));
}

}  // namespace

void requantizing(const MixedCache& p, StreamRef stream) {
  for (int64_t page = 0; page < p.moved.extent(0) && p.pages.size() > 0; ++page) {
    const MixedCache::Move from = p.moves(page);
    requantize_kernel<<<dim3(kCtas, kKvHeads), kThreads, 0, stream>>>({.in_bf16   = p.in_bf16(),
                                                                       .in_fp8    = p.in_fp8(),
                                                                       .bf16_page = &p.pages(0, from.bf16),
                                                                       .fp8_page  = &p.pages(0, from.fp8),
                                                                       .to        = &p.moved(page, 0)});
    FATHOM_LAUNCHED();
  }
  mixed(p, stream);
}

}  // namespace fathom::lab::dynamic_quantized_cache
