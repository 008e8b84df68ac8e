// y = x / sqrt(mean x^2 + epsilon) of each row        fp32
//
// bytes   8 a number: x read, y written
// flops   3 a number
// limit   DRAM bandwidth. H200: 32768 rows of 2048 are 537 MB, 0.135 ms at the 3.98 TB/s of a copy
// idea    baseline: no pipeline. A block for each row, which its threads hold in registers. While a block
//         waits for its row, the other blocks of the multiprocessor compute
#include "cuda/check.h"
#include "experiments/ch10_pipelining/rms_norm.cuh"
#include "rows.h"

namespace fathom::lab::pipeline_stages {
namespace {

constexpr int kThreads = 256, kVectors = kMaxWidth / 4 / kThreads;  // float4 of a thread

__global__ void __launch_bounds__(kThreads) rows_kernel(const float* in, float* out, int width) {
  __shared__ float of_warp[kThreads / 32];
  const int64_t first  = int64_t{blockIdx.x} * width;
  const auto at        = [](int v) { return static_cast<int>(threadIdx.x) + v * kThreads; };
  float4 own[kVectors] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (at(v) < width / 4) own[v] = reinterpret_cast<const float4*>(in + first)[at(v)];
  float squares = 0;
#pragma unroll
  for (const float4 v : own) squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  const float scale = rms_norm::scale_of(rms_norm::block_sum<kThreads>(squares, of_warp), width);
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (at(v) < width / 4)
      reinterpret_cast<float4*>(out + first)[at(v)] = {own[v].x * scale, own[v].y * scale, own[v].z * scale,
                                                       own[v].w * scale};
}

}  // namespace

void many_blocks(const RmsNorm& p, StreamRef stream) {
  FATHOM_EXPECT(p.width() <= kMaxWidth, "a row is at most 8192 numbers");
  if (p.rows() == 0) return;
  rows_kernel<<<static_cast<unsigned>(p.rows()), kThreads, 0, stream>>>(p.in.data(), p.out.data(),
                                                                        static_cast<int>(p.width()));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::pipeline_stages
