// Products of bf16 rows with packed weights (kernels/gemm/packed_weights.h) on a GPU:
//   y(t, n) = bias(n) + sum_k x(t, k) w(n, k)
//
// bytes   2 N K of weights once, whatever T; 2 T K of x; what the epilogue reads and writes
// flops   2 T N K
// limit   memory bandwidth up to about 200 rows, the tensor cores beyond
//
// x [T, K] is bf16 with contiguous rows, each 16-byte aligned. K is the padded depth of the weights, and the
// numbers of x in the padding must be finite. Sums are in fp32. All pointers are to the device.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/attention/qkv_rope_output.h"
#include "kernels/cost.h"
#include "kernels/gemm/packed_weights.h"

namespace fathom::kernels {

// T from 1 to kMaxGemvRows. The order of summation is fixed, so that a row's result depends neither on T, nor
// on the other rows, nor on the GPU.
void qkv_rope_gemv(View<const bf16, 2> x, const PackedMatrix& w, const QkvRopeOutput& to, StreamRef stream);
void linear_add_gemv(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream);
void linear_gemv(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream);

// The order in which a row's products are added. by_rows: the best for the number of rows. one: the same for
// any number of rows, so that a row's bits depend on nothing but the row and the GPU (batch invariance).
enum class SumOrder { by_rows, one };

// Any T >= 1; made for many rows. A row's result does not depend on the other rows' numbers.
void qkv_rope_gemm(View<const bf16, 2> x, const PackedMatrix& w, const QkvRopeOutput& to, StreamRef stream,
                   SumOrder order = SumOrder::by_rows);
void linear_add_gemm(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                     SumOrder order = SumOrder::by_rows);
void linear_gemm(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                 SumOrder order = SumOrder::by_rows);

// w is in rotary_pairs, with a bias. Padding rows (slot_mapping -1) still get queries.
inline void qkv_rope(View<const bf16, 2> x, const PackedMatrix& w, const QkvRopeOutput& to, StreamRef stream,
                     SumOrder order = SumOrder::by_rows) {
  if (x.extent(0) == 0) return;
  if (x.extent(0) <= kMaxGemvRows && order == SumOrder::by_rows) return qkv_rope_gemv(x, w, to, stream);
  qkv_rope_gemm(x, w, to, stream, order);
}

// y += W x + b. y is [T, rows of the checkpoint] with contiguous rows; w is in plain order.
inline void linear_add(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                       SumOrder order = SumOrder::by_rows) {
  if (x.extent(0) == 0) return;
  if (x.extent(0) <= kMaxGemvRows && order == SumOrder::by_rows) return linear_add_gemv(x, w, y, stream);
  linear_add_gemm(x, w, y, stream, order);
}

// y = W x + b, with the same shapes.
inline void linear(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                   SumOrder order = SumOrder::by_rows) {
  if (x.extent(0) == 0) return;
  if (x.extent(0) <= kMaxGemvRows && order == SumOrder::by_rows) return linear_gemv(x, w, y, stream);
  linear_gemm(x, w, y, stream, order);
}

// ---- cost ----

// x and the weights of T rows, without the epilogue. `rows` of weights and `depth` include padding.
inline Cost packed_product_cost(int64_t tokens, int64_t rows, int64_t depth, bool bias) {
  const auto T = static_cast<double>(tokens), N = static_cast<double>(rows), K = static_cast<double>(depth);
  return {.read = 2 * N * K + 2 * T * K + (bias ? 4 * N : 0), .flops = 2 * T * N * K};
}

// For the `cached` of T rows that are not padding; a position of one key-value head has `position_bytes`.
inline Cost qkv_rope_cost(int64_t tokens, int64_t cached, int64_t query_heads, int64_t kv_heads,
                          int64_t depth, int64_t position_bytes) {
  Cost cost = packed_product_cost(tokens, (query_heads + 2 * kv_heads) * kHeadDim, depth, true);
  cost.read += static_cast<double>(tokens) * (4 * kHeadDim + 4);
  cost.written +=
      static_cast<double>(tokens * query_heads * kHeadDim * 2 + cached * kv_heads * position_bytes);
  return cost;
}

// y has `columns` of the weights' rows.
inline Cost linear_cost(int64_t tokens, int64_t rows, int64_t depth, int64_t columns, bool bias) {
  Cost cost    = packed_product_cost(tokens, rows, depth, bias);
  cost.written = 4.0 * static_cast<double>(tokens) * static_cast<double>(columns);
  return cost;
}
inline Cost linear_add_cost(int64_t tokens, int64_t rows, int64_t depth, int64_t columns, bool bias) {
  Cost cost = linear_cost(tokens, rows, depth, columns, bias);
  cost.read += cost.written;
  return cost;
}

}  // namespace fathom::kernels
