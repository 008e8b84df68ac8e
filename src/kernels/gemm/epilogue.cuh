// An epilogue takes the sums of a product W x from the threads that have them, and stores the result. The
// GEMVs (mma.sync) and the GEMMs (wgmma) on packed weights use the same ones: LinearEpilogue here,
// kernels/attention/fused_rope_kv_write.cuh, kernels/moe/swiglu_epilogue.cuh and
// kernels/moe/weighted_epilogue.cuh.
//
// A thread has the sums of packed rows p and p + 8 (p % 16 < 8) for row t of x. The 8 lanes of a warp with
// equal lane % 4 have the same t and the 16 rows of one group: p % 8 is lane / 4.
//
//   read(p, t)                          the other operands (bias, what is added to); a thread with many sums
//                                       calls it for several of them first, so that their loads overlap
//   (p, t, low, high, operands)         stores; low and high are the sums of rows p and p + 8
//   (p, t, low, high)                   both
//
// Products that are added to something are written as __fmaf_rn. Otherwise the compiler would contract them
// differently in each kernel, and a row's bits would depend on the kernel.
#pragma once

#include <cstdint>

namespace fathom::kernels {

// y(t, p) = product + bias, or that added to y. Packed rows are those of the checkpoint (RowOrder::plain);
// the first `rows` of them are stored.
template <bool kAdd>
struct LinearEpilogue {
  float* y;  // [T, stride]
  int64_t stride;
  int64_t rows;
  const float* bias;  // null: none

  struct Operands {
    float low, high;  // bias, or that and y
  };
  __device__ Operands read(int p, int t) const { return {read_one(p, t), read_one(p + 8, t)}; }

  __device__ void operator()(int p, int t, float low, float high, const Operands& operands) const {
    if (p < rows) y[t * stride + p] = operands.low + low;
    if (p + 8 < rows) y[t * stride + p + 8] = operands.high + high;
  }
  __device__ void operator()(int p, int t, float low, float high) const {
    (*this)(p, t, low, high, read(p, t));
  }

 private:
  __device__ float read_one(int p, int t) const {
    if (p >= rows) return 0;
    return (bias ? bias[p] : 0.0f) + (kAdd ? y[t * stride + p] : 0.0f);
  }
};

}  // namespace fathom::kernels
