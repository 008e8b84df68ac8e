// code(r, c) = round(x(r, c) / unit of its group)      R x C, bf16 to the formats of kernels/quant/formats.h
//
// bytes   3 n, or 2.5 n in 4 bits, and scales; what a row has beyond 16384 numbers is read twice
// flops   as number_a_thread
// limit   DRAM bandwidth. H200: 2^29 numbers to E4M3 are 1.6 GB, 0.38 ms at a copy's 4.2 TB/s
// idea    a thread has four vectors of 8 numbers in flight, and stores 8 codes at once. Numbers stay in
//         registers while their group's scale is found
#include "conversion.h"
#include "cuda/check.h"
#include "kernels/quant/tiles.cuh"
#include "rules.cuh"

namespace fathom::lab::quantize_formats {

using namespace kernels;
namespace {

template <class Format>
constexpr bool kInRows = !kInBlocks<Format> && !kScaleIsGiven<Format>;

__device__ void unpack(uint4 x, float (&numbers)[8]) {
  const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    numbers[2 * i]     = __uint_as_float(pairs[i] << 16);
    numbers[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
  }
}

__device__ float amax_of(uint4 x) {
  float numbers[8], amax = 0;
  unpack(x, numbers);
#pragma unroll
  for (const float number : numbers) amax = fmaxf(amax, fabsf(number));
  return amax;
}

template <int kLanes>
__device__ float amax_of_lanes(float amax) {
#pragma unroll
  for (int other = kLanes / 2; other > 0; other /= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, other));
  return amax;
}

// Over the threads of a row, which are one warp or a whole block.
__device__ float amax_of_row(float amax) {
  __shared__ float of_warp[32];
  amax = amax_of_lanes<32>(amax);
  if (blockDim.x == 32) return amax;
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = amax;
  __syncthreads();  // all warps have written before any reads
  for (unsigned w = 0; w < blockDim.x / 32; ++w) amax = fmaxf(amax, of_warp[w]);
  return amax;
}

template <class Format>
__device__ void encode_and_store(uint4 x, float unit, const Tiles& t, const Place& at, int k,
                                 uint8_t* codes) {
  constexpr int kBits = kPacked<Format> ? 4 : 8;
  float numbers[8];
  unpack(x, numbers);
  uint32_t words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i) words[i * kBits / 32] |= code_of<Format>(numbers[i], unit) << i * kBits % 32;
  const int64_t bytes = code_columns<Format>(t.cols);
  uint8_t* const row  = codes + at.row * bytes;
  if constexpr (kPacked<Format>)
    store_word(row, bytes, at.first, k, t.whole, words[0]);
  else
    store_word(row, bytes, at.first, k, t.whole, uint2{words[0], words[1]});
}

template <class Format>
__global__ void __launch_bounds__(kInRows<Format> ? 512 : 256)
    vectors_kernel(const bf16* x, const float* given, uint8_t* codes, ScaleOf<Format>* scales, Tiles t) {
  Place at = place_of(t);
  if constexpr (kInRows<Format>)
    at = {int64_t{blockIdx.x} * blockDim.y + threadIdx.y, static_cast<int>(threadIdx.x)};
  if (at.row >= t.rows) return;  // whole warps, and only where a row is one warp's
  const auto* row = reinterpret_cast<const uint8_t*>(x + at.row * t.cols);
  uint4 v[kLoads];
  load_words(row, 2 * t.cols, at.first, t.whole, v);

  if constexpr (kInRows<Format>) {
    const int step = static_cast<int>(blockDim.x) * kLoads;
    float amax     = 0;
#pragma unroll
    for (int k = 0; k < kLoads; ++k) amax = fmaxf(amax, amax_of(v[k]));
    uint4 more[kLoads];
    for (int tile = 1; tile < t.tiles; ++tile) {
      load_words(row, 2 * t.cols, at.first + tile * step, t.whole, more);
#pragma unroll
      for (int k = 0; k < kLoads; ++k) amax = fmaxf(amax, amax_of(more[k]));
    }
    const float scale = scale_of<Format>(amax_of_row(amax), 0);
    if (threadIdx.x == 0) scales[at.row] = scale;
    for (int tile = 0;;) {
#pragma unroll
      for (int k = 0; k < kLoads; ++k) encode_and_store<Format>(v[k], scale, t, at, k, codes);
      if (++tile >= t.tiles) return;
      at.first += step;
      load_words(row, 2 * t.cols, at.first, t.whole, v);
    }
  } else if constexpr (kInBlocks<Format>) {
    constexpr int kLanes  = Format::kBlock / kVectorSize;
    const float of_tensor = given ? *given : 0.0f;
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const ScaleOf<Format> scale = scale_of<Format>(amax_of_lanes<kLanes>(amax_of(v[k])), of_tensor);
      const int vector            = at.first + k * static_cast<int>(blockDim.x);
      if (vector % kLanes == 0 && vector < t.vectors)
        scales[at.row * scale_columns<Format>(t.cols) + vector / kLanes] = scale;
      encode_and_store<Format>(v[k], unit_of<Format>(scale, of_tensor), t, at, k, codes);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kLoads; ++k) encode_and_store<Format>(v[k], *given, t, at, k, codes);
  }
}

}  // namespace

void vectors_of_8(const Conversion& p, StreamRef stream) {
  if (p.x.size() == 0) return;
  with_format(p.format, [&]<class Format>() {
    const TiledLaunch l =
        tiled_launch(p.x.extent(0), p.x.extent(1),
                     aligned_to(p.x.data(), 16) && aligned_to(p.codes.data(), 8), kInRows<Format>);
    vectors_kernel<Format>
        <<<l.grid, l.block, 0, stream>>>(p.x.data(), p.tensor_scale.data(), p.codes.data(),
                                         reinterpret_cast<ScaleOf<Format>*>(p.scales.data()), l.tiles);
    FATHOM_LAUNCHED();
  });
}

}  // namespace fathom::lab::quantize_formats
