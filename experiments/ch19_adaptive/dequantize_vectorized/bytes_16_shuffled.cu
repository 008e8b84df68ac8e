// out(i) = code(i) 2^(scale(i / 32) - 127)   n numbers, MXFP8 or MXFP4 to bf16
//
// bytes   3.03 n or 2.53 n: n or n / 2 of codes, n / 32 of scales, 2 n written
// flops   2 n
// limit   DRAM bandwidth. H200: n = 2^28 moves 0.81 or 0.68 GB, 0.20 or 0.17 ms at 4 TB/s
// idea    a thread loads 16 bytes of codes, as in bytes_16. Before they are decoded the lanes of a warp
//         exchange them by shuffles, so that lane l has the l-th 8 numbers of 256 in a row: each store of the
//         warp is 512 bytes without a gap. Codes are a half or a quarter of the bytes that they become
#include "dequantize.cuh"

namespace fathom::lab::dequantize_vectorized {
namespace {

// The uint4 of codes of a lane are kVectors vectors of output, whose codes are kWords words each.
template <class Format>
__global__ void __launch_bounds__(kThreads)
    shuffled_kernel(const uint4* __restrict__ codes, const uint8_t* __restrict__ scales,
                    bf16* __restrict__ out, int words) {
  constexpr int kCodes = 16 * Format::kInByte, kVectors = kCodes / 8, kWords = 4 / kVectors;
  const int i = blockIdx.x * kThreads + threadIdx.x, lane = threadIdx.x % 32;
  // A lane without codes loads nothing, and takes part in the shuffles.
  const uint4 own        = i < words ? codes[i] : uint4{};
  const float scale      = i < words ? power_of(scales[int64_t{i} * kCodes / kBlock]) : 0;
  const uint32_t word[4] = {own.x, own.y, own.z, own.w};

  const int64_t warp_first = int64_t{i - lane} * kVectors;  // vector of the output
#pragma unroll
  for (int s = 0; s < kVectors; ++s) {
    const int from = (32 * s + lane) / kVectors, which = lane % kVectors;
    uint32_t of_vector[kWords] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const uint32_t theirs = __shfl_sync(~0u, word[v * kWords + w], from);
        if (v == which) of_vector[w] = theirs;
      }
    const float of_scale = __shfl_sync(~0u, scale, from);
    const auto number    = [&](int c) {
      const int byte = c / Format::kInByte;
      return Format::decoded(byte_of(of_vector[byte / 4], byte % 4), c % Format::kInByte) * of_scale;
    };
    const int64_t vector = warp_first + 32 * s + lane;
    if (vector < int64_t{words} * kVectors)
      reinterpret_cast<uint4*>(out)[vector] = {
          rows::pair_of(number(0), number(1)), rows::pair_of(number(2), number(3)),
          rows::pair_of(number(4), number(5)), rows::pair_of(number(6), number(7))};
  }
}

}  // namespace

void bytes_16_shuffled(const Dequantize& p, StreamRef stream) {
  launch<uint4>(p, shuffled_kernel<E2m1>, shuffled_kernel<E4m3>, stream);
}

}  // namespace fathom::lab::dequantize_vectorized
