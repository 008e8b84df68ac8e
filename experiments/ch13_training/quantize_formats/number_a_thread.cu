// code(r, c) = round(x(r, c) / unit of its group)      R x C, bf16 to the formats of kernels/quant/formats.h
//
// bytes   3 n, or 2.5 n in 4 bits, and scales; a row is read twice, the second time from L2
// flops   about 20 n with CUDA's division, more with its conversion to E2M1
// limit   DRAM bandwidth. H200: 2^29 numbers to E4M3 are 1.6 GB, 0.38 ms at a copy's 4.2 TB/s
// idea    baseline: a thread has one number (in a row, one at a time). Threads of a group are neighbours, and
//         find its largest number by shuffles
#include "conversion.h"
#include "cuda/check.h"
#include "rules.cuh"

namespace fathom::lab::quantize_formats {

using namespace kernels;
namespace {

constexpr int kThreads = 256;

__device__ float number(const bf16* x, int64_t i) { return static_cast<float>(x[i]); }

// Of the 2^k neighbouring lanes that share a group, or of a whole warp.
template <int kLanes>
__device__ float amax_of_lanes(float amax) {
  for (int other = kLanes / 2; other > 0; other /= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, other));
  return amax;
}

// Of the kWarps neighbouring warps that share a group; all threads of the block call it.
template <int kWarps>
__device__ float amax_of_warps(float amax) {
  __shared__ float of_warp[kThreads / 32];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  of_warp[warp]  = amax_of_lanes<32>(amax);
  __syncthreads();  // all warps have written before any reads
  amax = 0;
  for (int w = 0; w < kWarps; ++w) amax = fmaxf(amax, of_warp[warp / kWarps * kWarps + w]);
  return amax;
}

template <class Format>
__global__ void __launch_bounds__(kThreads)
    tensor_kernel(const bf16* x, const float* given, uint8_t* codes, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) codes[i] = static_cast<uint8_t>(code_of<Format>(number(x, i), *given));
}

// A block for each row.
template <class Format>
__global__ void __launch_bounds__(kThreads)
    row_kernel(const bf16* x, uint8_t* codes, float* scales, int64_t columns) {
  const int64_t first = blockIdx.x * columns;
  float amax          = 0;
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) amax = fmaxf(amax, fabsf(number(x, first + c)));
  const float scale = scale_of<Format>(amax_of_warps<kThreads / 32>(amax), 0);
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  for (int64_t c = threadIdx.x; c < columns; c += kThreads)
    codes[first + c] = static_cast<uint8_t>(code_of<Format>(number(x, first + c), scale));
}

// kBlock threads for each group. Threads beyond the last group, or beyond the end of a row, have a 0.
template <class Format>
__global__ void __launch_bounds__(kThreads)
    block_kernel(const bf16* x, const float* given, uint8_t* codes, ScaleOf<Format>* scales, int64_t rows,
                 int64_t columns) {
  constexpr int kBlock  = Format::kBlock;
  const int64_t of_row  = scale_columns<Format>(columns);
  const int64_t group   = int64_t{blockIdx.x} * (kThreads / kBlock) + threadIdx.x / kBlock;
  const int64_t row     = group / of_row;
  const int64_t column  = group % of_row * kBlock + threadIdx.x % kBlock;
  const bool mine       = row < rows && column < columns;
  const float x_here    = mine ? number(x, row * columns + column) : 0.0f;
  const float of_tensor = given ? *given : 0.0f;
  float amax            = fabsf(x_here);
  if constexpr (kBlock <= 32)
    amax = amax_of_lanes<kBlock>(amax);
  else
    amax = amax_of_warps<kBlock / 32>(amax);
  const ScaleOf<Format> scale = scale_of<Format>(amax, of_tensor);
  if (mine && threadIdx.x % kBlock == 0) scales[group] = scale;
  const uint32_t code = code_of<Format>(x_here, unit_of<Format>(scale, of_tensor));
  if constexpr (kPacked<Format>) {  // every second thread stores its neighbour's code too
    const uint32_t next = __shfl_down_sync(~0u, code, 1);
    if (mine && column % 2 == 0)
      codes[row * code_columns<Format>(columns) + column / 2] = static_cast<uint8_t>(code | next << 4);
  } else if (mine) {
    codes[row * columns + column] = static_cast<uint8_t>(code);
  }
}

}  // namespace

void number_a_thread(const Conversion& p, StreamRef stream) {
  const int64_t rows = p.x.extent(0), columns = p.x.extent(1);
  if (p.x.size() == 0) return;
  with_format(p.format, [&]<class Format>() {
    uint8_t* const codes = p.codes.data();
    auto* const scales   = reinterpret_cast<ScaleOf<Format>*>(p.scales.data());
    if constexpr (kInBlocks<Format>) {
      const int64_t groups = rows * scale_columns<Format>(columns);
      const float* given   = kScaleIsGiven<Format> ? p.tensor_scale.data() : nullptr;
      block_kernel<Format><<<blocks_for(groups * Format::kBlock, kThreads), kThreads, 0, stream>>>(
          p.x.data(), given, codes, scales, rows, columns);
    } else if constexpr (kScaleIsGiven<Format>) {
      tensor_kernel<Format><<<blocks_for(p.x.size(), kThreads), kThreads, 0, stream>>>(
          p.x.data(), p.tensor_scale.data(), codes, p.x.size());
    } else {
      row_kernel<Format>
          <<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(p.x.data(), codes, scales, columns);
    }
    FATHOM_LAUNCHED();
  });
}

}  // namespace fathom::lab::quantize_formats
