// out(i) = in(i)                       n fp32
//
// bytes   8 n    4 n read + 4 n written
// flops   0
// limit   DRAM bandwidth. H200: 2^28 floats move 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    32 bytes a thread in one instruction, from sm_100 on. Written in PTX (.v8.f32), so that no
//         compiler takes it apart into two accesses of 16. Older GPUs have only those two: a load or store of
//         the warp then takes one half of each 32 bytes, and the next one the other half
#include "copy.h"
#include "cuda/check.h"

namespace fathom::lab::copy_vectorized {
namespace {

struct alignas(32) Float8 {
  float lane[8];
};
using Vector           = Float8;
constexpr int kWidth   = sizeof(Vector) / sizeof(float);
constexpr int kThreads = 256;

__device__ void copy_vector(Vector* to, const Vector* from) {
#if __CUDA_ARCH__ >= 1000
  float a, b, c, d, e, f, g, h;
  asm volatile("ld.global.v8.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
               : "=f"(a), "=f"(b), "=f"(c), "=f"(d), "=f"(e), "=f"(f), "=f"(g), "=f"(h)
               : "l"(from));
  asm volatile("st.global.v8.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(to), "f"(a), "f"(b), "f"(c),
               "f"(d), "f"(e), "f"(f), "f"(g), "f"(h)
               : "memory");
#else
  const auto* halves = reinterpret_cast<const float4*>(from);
  const float4 a = halves[0], b = halves[1];
  reinterpret_cast<float4*>(to)[0] = a;
  reinterpret_cast<float4*>(to)[1] = b;
#endif
}

__global__ void __launch_bounds__(kThreads)
    copy_kernel(const float* __restrict__ in, float* __restrict__ out, int64_t n) {
  const int64_t i       = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t vectors = n / kWidth;
  if (i < vectors) {
    copy_vector(reinterpret_cast<Vector*>(out) + i, reinterpret_cast<const Vector*>(in) + i);
  } else {
    const int64_t j = vectors * kWidth + (i - vectors);  // the rest, where n is no multiple of the width
    if (j < n) out[j] = in[j];
  }
}

}  // namespace

void vector8(const Copy& p, StreamRef stream) {
  const int64_t n = p.in.extent(0);
  if (n == 0) return;
  copy_kernel<<<blocks_for(n / kWidth + n % kWidth, kThreads), kThreads, 0, stream>>>(p.in.data(),
                                                                                      p.out.data(), n);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::copy_vectorized
