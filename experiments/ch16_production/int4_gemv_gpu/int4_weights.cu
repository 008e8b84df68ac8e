// out(m, t, n) = sum_k x(m, t, k) scale(m, n, k / G) (code(m, n, k) - zero(m, n, k / G))
//
// bytes   M N K / 2 of codes, 3 of each G weights' scale and zero point, once, for up to 8 rows
// flops   2 M T N K, by the CUDA cores, and some 4 instructions to unpack a weight
// limit   memory bandwidth. H200: 70 MB, 8 matrices of 4096 x 4096, are 16 us at 4.55 TB/s
// idea    the same kernel, which reads a quarter of the bytes: codes in the checkpoint's layout, 4 bytes a
//         lane. A code becomes a float below 2^23's exponent, and loses 2^23 + zero
#include <cuda_fp16.h>

#include "warp_gemv.cuh"

namespace fathom::lab::int4_gemv_gpu {
namespace {

struct Int4Weights {
  kernels::Int4Matrices w;
  int vectors_log;  // of a group's number of vectors

  struct Row {
    const uint32_t* codes;
    const __half* scales;
    const uint8_t* zeros;
    int vectors_log;

    __device__ Eight eight(int v) const {
      const uint32_t word       = __ldg(codes + v);
      const int group           = v >> vectors_log;
      const float scale         = __half2float(__ldg(scales + group));
      constexpr uint32_t k2To23 = 0x4b000000;
      const float offset        = __uint_as_float(k2To23 | __ldg(zeros + group));
      Eight weights;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        weights.at[i] = scale * (__uint_as_float(k2To23 | (word >> 4 * i & 15)) - offset);
      return weights;
    }
  };
  __device__ Row row(int matrix, int output) const {
    return {reinterpret_cast<const uint32_t*>(&w.codes(matrix, output, 0)),
            reinterpret_cast<const __half*>(&w.scales(matrix, output, 0)), &w.zeros(matrix, output, 0),
            vectors_log};
  }
};

}  // namespace

void int4_weights(const Projection& p, StreamRef stream) {
  launch_warp_gemv(p, Int4Weights{p.weights.int4(p.memory.data()), p.weights.group == 64 ? 3 : 4}, stream);
}

}  // namespace fathom::lab::int4_gemv_gpu
