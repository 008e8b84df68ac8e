// to = blocks * scales                        n numbers, MXFP4 to bf16
//
// bytes   17/32 of a number read, 2 written
// limit   memory bandwidth, mostly of writes
// idea    a thread turns 4 bytes into 16, so that a warp's loads and stores are both contiguous; four of its
//         words are in flight at once
#include "cuda/check.h"
#include "experiments/ch15_moe_inference/mxfp4_layers.h"
#include "experiments/ch15_moe_inference/mxfp4_unpack.cuh"
#include "experiments/rows.cuh"

namespace fathom::lab::mxfp4 {
namespace {

constexpr int kThreads = 256;
constexpr int kEach    = 4;  // words of a thread

__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const uint32_t* words, const uint8_t* scales, int64_t count, uint4* to) {
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kEach) + threadIdx.x;
  uint32_t word[kEach], code[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = first + i * kThreads;
    word[i]          = at < count ? __ldg(words + at) : 0;
    code[i]          = at < count ? __ldg(scales + at / 4) : 0;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    rows::Elements<8> numbers;
    unpack(word[i], numbers.at);
    for (float& number : numbers.at) number *= scale(code[i]);
    if (first + i * kThreads < count) to[first + i * kThreads] = rows::pack(numbers);
  }
}

}  // namespace

void dequantize(View<const uint8_t, 4> blocks, View<const uint8_t, 3> scales, bf16* to, StreamRef stream) {
  FATHOM_EXPECT(blocks.contiguous() && scales.contiguous() && blocks.extent(3) == 16 &&
                    blocks.size() == 16 * scales.size(),
                "dequantize: blocks are [E, out, G, 16] and scales [E, out, G], contiguous");
  const int64_t count = blocks.size() / 4;
  if (count == 0) return;
  dequantize_kernel<<<blocks_for(count, kThreads * kEach), kThreads, 0, stream>>>(
      reinterpret_cast<const uint32_t*>(blocks.data()), scales.data(), count, reinterpret_cast<uint4*>(to));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::mxfp4
