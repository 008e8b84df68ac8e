// x(t, .) = table(token(t), .), fp32 from bf16
//
// bytes   a token: 2 H read, 4 H written
// limit   latency at few rows: sampled(source), then the row of the table; DRAM bandwidth at many
// idea    16 bytes a thread, and as many CTAs for a row as that takes
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "kernels/alignment.h"
#include "kernels/embedding/embedding_gpu.h"

namespace fathom::kernels {
namespace {

constexpr int kVector  = 8;  // bf16 numbers in 16 bytes
constexpr int kThreads = 128;

__device__ float4 unpack_bf16x4(uint32_t first, uint32_t second) {
  return {__uint_as_float(first << 16), __uint_as_float(first & 0xffff0000u), __uint_as_float(second << 16),
          __uint_as_float(second & 0xffff0000u)};
}

// Grid: (T, CTAs of a row).
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(const int32_t* tokens, const int32_t* source, const int32_t* sampled, const bf16* table,
                     int vocabulary, float* x, int width) {
  const int t = blockIdx.x, at = (blockIdx.y * kThreads + threadIdx.x) * kVector;
  const int from = source[t];
  int token      = tokens[t];
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  if (at >= width) return;
  if (from >= 0) token = sampled[from];
  uint4 v = {};
  if (token >= 0 && token < vocabulary)
    v = __ldg(reinterpret_cast<const uint4*>(table + int64_t{token} * width + at));
  auto* to = reinterpret_cast<float4*>(x + int64_t{t} * width + at);
  to[0]    = unpack_bf16x4(v.x, v.y);
  to[1]    = unpack_bf16x4(v.z, v.w);
}

}  // namespace

void embedding(View<const int32_t, 1> tokens, View<const int32_t, 1> source, View<const int32_t, 1> sampled,
               View<const bf16, 2> table, View<float, 2> x, StreamRef stream) {
  const int64_t rows = x.extent(0), width = x.extent(1);
  FATHOM_EXPECT(tokens.extent(0) == rows && source.extent(0) == rows && table.extent(1) == width,
                "embedding: tokens and source are [T], table [V, H], x [T, H]");
  FATHOM_EXPECT(width % kVector == 0 && table.contiguous() && x.contiguous() && aligned_to_16(table.data()) &&
                    aligned_to_16(x.data()) && tokens.contiguous() && source.contiguous() &&
                    sampled.contiguous(),
                "embedding: rows are whole vectors of 16 bytes, one after another");
  if (x.size() == 0) return;
  FATHOM_EXPECT(rows <= INT32_MAX && table.extent(0) <= INT32_MAX, "embedding: the kernel counts in 32 bits");
  launch_with_pdl(embedding_kernel, dim3(static_cast<unsigned>(rows), blocks_for(width, kThreads * kVector)),
                  dim3(kThreads), 0, stream, tokens.data(), source.data(), sampled.data(), table.data(),
                  static_cast<int>(table.extent(0)), x.data(), static_cast<int>(width));
}

}  // namespace fathom::kernels
