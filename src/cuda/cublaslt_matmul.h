// A GEMM by cuBLASLt, planned once and run often. Only builds with CUDA have it. Cheap to
// include: no header of cuBLAS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/dtype.h"
#include "cuda/stream.h"

namespace fathom {

// d(i, j) = sum_l a(i, l) b(j, l): a is m x k, b is n x k, d is m x n, all row-major without gaps. k is the
// contiguous index of both inputs, the one layout that the tensor cores support in every format.
class LtMatmul {
 public:
  // Scales of blocks of e4m3 inputs: one for 128 numbers of a row of a, ceil(k / 128) x m, and one for 128 x
  // 128 numbers of b, ceil(n / 128) x ceil(k / 128). Rows have m and ceil(k / 128) numbers, rounded up to a
  // multiple of 4. (cuBLASLt: VEC128_32F and BLK128x128_32F, on Hopper alone.)
  struct BlockScales {
    const float *a, *b;
  };

  // in: fp32, bf16, fp16 or fp8_e4m3; out: fp32, bf16 or fp16 (for fp8, bf16 works on every GPU and fp32 on
  // some). Accumulates in fp32. tf32 applies to fp32 inputs: without it their products are exact and run on
  // the CUDA cores. fp8: both scales are 1, k and n are multiples of 16, and the tensor cores accumulate with
  // about 14 bits (fast accumulation), the usual setting of peak measurements; with `scales`, each 128 of k
  // are scaled and added in fp32. The plan belongs to the current GPU. Throws SystemError where cuBLASLt is
  // missing or has no algorithm for this.
  LtMatmul(DType in, DType out, bool tf32, int64_t m, int64_t n, int64_t k,
           const BlockScales* scales = nullptr);
  ~LtMatmul();
  LtMatmul(LtMatmul&&) noexcept;
  LtMatmul& operator=(LtMatmul&&) noexcept;

  // Bytes of device memory that run() and tune() need, aligned to 256; may be 0.
  size_t workspace_bytes() const;

  // Times each algorithm that cuBLASLt offers for this product (at most kCandidates) on these operands, and
  // keeps the fastest, where the constructor takes the one that the heuristic puts first. Waits for the
  // stream. Takes about a hundred runs.
  static constexpr int kCandidates = 32;
  void tune(const void* a, const void* b, void* d, void* workspace, StreamRef stream);

  // Other scales for the calls that follow, of a plan that was made with scales.
  void set_scales(const BlockScales& scales);

  // Scales of whole e4m3 inputs, one number each in GPU memory, for the calls that follow, of a plan that was
  // made without scales of blocks.
  struct TensorScales {
    const float *a, *b;
  };
  void set_scales(const TensorScales& scales);

  // Enqueues the product. a, b and d are aligned to 16 bytes.
  void run(const void* a, const void* b, void* d, void* workspace, StreamRef stream) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace fathom
