// out = log sum exp of each row              R x C, bf16 in, fp32 out
//
// bytes   2 R C
// flops   5 R C
// limit   DRAM bandwidth: 13 instructions an element at 4.5 TB/s, if every multiprocessor issues four a clock
// idea    two instructions that C++ offers only by a flag for the whole file or another header: ex2 that
//         flushes subnormals, so that an exponential is one multiply-add and one ex2; and the maximum of two
//         pairs of bf16 at once, before they are unpacked
#include "logsumexp.cuh"

namespace fathom::lab::inline_ptx {
namespace {

struct Ptx {
  static __device__ uint32_t larger(uint32_t a, uint32_t b) {
    uint32_t pair;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
  }
  static __device__ float highest(uint4 packed) {
    const uint32_t pair = larger(larger(packed.x, packed.y), larger(packed.z, packed.w));
    return fmaxf(rows::low(pair), rows::high(pair));
  }
  static __device__ float exponential(float x, float by) {
    constexpr float kLog2e = online_softmax_gpu::kLog2e;
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(x, kLog2e, -by * kLog2e)));
    return y;
  }
};

}  // namespace

void ptx(const LogSumExp& p, StreamRef stream) { launch<Ptx>(p, stream); }

}  // namespace fathom::lab::inline_ptx
