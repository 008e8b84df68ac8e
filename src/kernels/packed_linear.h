// Products with packed weights (kernels/packed_weights.h) on a GPU: y(t, n) = bias(n) + sum_k x(t, k) w(n, k)
//
// bytes   2 N K of weights once, whatever T; 2 T K of x
// flops   2 T N K
// limit   memory bandwidth up to about 200 rows, the tensor cores beyond
//
// x [T, K] is bf16 with contiguous rows, each 16-byte aligned; K is the padded depth of the weights, and what
// x has in the padding must be finite. Sums are in fp32. All pointers are to the device.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/kv_tiles.h"
#include "kernels/packed_weights.h"

namespace fathom::kernels {

// ---- packing, when a model is loaded ----

// What a checkpoint's rows and columns come to when packed. head_dim as for source_row and source_column.
constexpr int64_t packed_rows(RowOrder order, int64_t rows, int64_t head_dim) {
  if (order == RowOrder::rotary_pairs) return rows / head_dim * kHeadDim;
  return order == RowOrder::gate_pairs ? 2 * padded(rows / 2) : padded(rows);
}
constexpr int64_t packed_depth(int64_t columns, int64_t head_dim) {
  return head_dim > 0 ? columns / head_dim * kHeadDim : padded(columns);
}

// w [rows, columns], with any strides, into tiles of packed_rows x packed_depth; the padding becomes zero.
// row_head_dim is for rotary_pairs only; column_head_dim is 0 unless columns are those of heads.
void pack_matrix(View<const bf16, 2> w, RowOrder order, int64_t row_head_dim, int64_t column_head_dim,
                 bf16* tiles, StreamRef stream);
// bias [E, rows] of E matrices, to out [E, padded_rows].
void pack_bias(View<const bf16, 2> bias, RowOrder order, int64_t head_dim, int64_t padded_rows, float* out,
               StreamRef stream);

// ---- products ----

// Where queries, keys and values go (kernels/rope.h turns them), whose rows follow each other in the weights:
// heads of queries, of keys, of values. As many of the latter two as the cache has.
struct HeadsTarget {
  View<const float, 2> turns;    // [T, 64]: 32 cosines, 32 sines of a row's position, contiguous
  View<const int32_t, 1> slots;  // [T]: page * 64 + place in the page; -1: padding, which leaves the cache
  View<bf16, 3> q;               // [T, query heads, 64], contiguous
  KvLayer kv;
};

inline constexpr int64_t kFewRows = 8;

// T from 1 to kFewRows. A row's result does not depend on T or on the other rows: one order of summation for
// all, whatever the GPU.
void project_heads_few(View<const bf16, 2> x, const PackedMatrix& w, const HeadsTarget& to, StreamRef stream);
void project_add_few(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream);
void project_few(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream);

// In which order a row's products are added up: in one that suits the number of rows, or in the same
// whatever that is, so that a row's bits depend on nothing but the row and the GPU.
enum class SumOrder { by_rows, one };

// Any T from 1 on, best where there are many. A row's result does not depend on the other rows.
void project_heads_many(View<const bf16, 2> x, const PackedMatrix& w, const HeadsTarget& to, StreamRef stream,
                        SumOrder order = SumOrder::by_rows);
void project_add_many(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                      SumOrder order = SumOrder::by_rows);
void project_many(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                  SumOrder order = SumOrder::by_rows);

// Of w in rotary_pairs, with a bias. Rows with slot -1 still get queries.
inline void project_heads(View<const bf16, 2> x, const PackedMatrix& w, const HeadsTarget& to,
                          StreamRef stream, SumOrder order = SumOrder::by_rows) {
  if (x.extent(0) == 0) return;
  if (x.extent(0) <= kFewRows && order == SumOrder::by_rows) return project_heads_few(x, w, to, stream);
  project_heads_many(x, w, to, stream, order);
}

// y += W x + b, y [T, rows of the checkpoint] with contiguous rows, of w in plain order.
inline void project_add(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                        SumOrder order = SumOrder::by_rows) {
  if (x.extent(0) == 0) return;
  if (x.extent(0) <= kFewRows && order == SumOrder::by_rows) return project_add_few(x, w, y, stream);
  project_add_many(x, w, y, stream, order);
}

// y = W x + b, likewise.
inline void project(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                    SumOrder order = SumOrder::by_rows) {
  if (x.extent(0) == 0) return;
  if (x.extent(0) <= kFewRows && order == SumOrder::by_rows) return project_few(x, w, y, stream);
  project_many(x, w, y, stream, order);
}

}  // namespace fathom::kernels
