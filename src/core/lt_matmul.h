// One matrix product by cuBLASLt on the tensor cores, planned once and run often. Only builds with CUDA have
// it. Cheap to include: no header of cuBLAS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/dtype.h"
#include "core/stream.h"

namespace fathom {

// d(i, j) = sum_l a(i, l) b(j, l): a is m x k, b is n x k, d is m x n, all row-major without gaps. Both
// inputs run along k, the one layout that the tensor cores take in every format.
class LtMatmul {
 public:
  // in: fp32, bf16, fp16 or fp8_e4m3; out: fp32, bf16 or fp16 (for fp8 not fp32 on every GPU; bf16 always).
  // Sums are fp32. tf32 is for fp32 inputs: without it their products are exact and run on the CUDA cores.
  // fp8: both scales are 1, k and n are multiples of 16, and sums keep about 14 bits while they are on the
  // tensor cores (fast accumulation), as is usual where the peak counts. Throws SystemError where cuBLASLt is
  // missing or has no algorithm for this.
  LtMatmul(DType in, DType out, bool tf32, int64_t m, int64_t n, int64_t k);
  ~LtMatmul();
  LtMatmul(LtMatmul&&) noexcept;
  LtMatmul& operator=(LtMatmul&&) noexcept;

  // Of the device memory that run() wants, aligned to 256 bytes; 0 where it wants none.
  size_t workspace_bytes() const;

  // Enqueues the product. a, b and d are aligned to 16 bytes.
  void run(const void* a, const void* b, void* d, void* workspace, StreamRef stream) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace fathom
