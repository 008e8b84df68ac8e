// Packs bf16 weights into the layout of kernels/gemm/packed_weights.h.
//
// bytes   2 N K read, 2 N K written
// limit   memory bandwidth. A thread writes 16 bytes of the packed matrix, so that stores are coalesced. Its
//         eight numbers come from pieces of 4 bytes, of which a warp reads whole sectors.
#include "cuda/check.h"
#include "kernels/gemm/pack_weights.h"

namespace fathom::kernels {
namespace {

constexpr int kBlock = 256;

// The bits of a number of the packed matrix.
struct Source {
  View<const bf16, 2> w;
  RowOrder order;
  int64_t row_head_dim, column_head_dim;

  __device__ uint32_t operator()(int64_t p, int64_t c) const {
    const int64_t row    = source_row(order, p, w.extent(0), row_head_dim);
    const int64_t column = source_column(c, w.extent(1), column_head_dim);
    return row < 0 || column < 0 ? 0 : w(row, column).bits;
  }
};

// `depth` is the number of packed columns.
__global__ void pack_matrix_kernel(Source source, int64_t depth, int64_t pieces, uint4* tiles) {
  const int64_t piece = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (piece >= pieces) return;
  const int within   = static_cast<int>(piece % 512);  // of a tile: warp, step, lane
  const int64_t tile = piece / 512, across = depth / kTile;
  const int lane  = within % 32;
  const int64_t p = tile / across * kTile + within / 128 * 16 + lane / 4;
  const int64_t c = tile % across * kTile + within / 32 % 4 * 16 + lane % 4 * 2;
  uint32_t a[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t row = p + i % 2 * 8, column = c + i / 2 * 8;
    a[i] = source(row, column) | source(row, column + 1) << 16;
  }
  tiles[piece] = {a[0], a[1], a[2], a[3]};
}

__global__ void pack_bias_kernel(View<const bf16, 2> bias, RowOrder order, int64_t head_dim, int64_t rows,
                                 float* out) {
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= bias.extent(0) * rows) return;
  const int64_t row = source_row(order, i % rows, bias.extent(1), head_dim);
  out[i]            = row < 0 ? 0.0f : static_cast<float>(bias(i / rows, row));
}

bool divides(int64_t head_dim, int64_t extent) {
  return head_dim > 0 && head_dim <= kHeadDim && head_dim % 2 == 0 && extent % head_dim == 0;
}

}  // namespace

void pack_matrix(View<const bf16, 2> w, RowOrder order, int64_t row_head_dim, int64_t column_head_dim,
                 bf16* tiles, StreamRef stream) {
  FATHOM_EXPECT(order != RowOrder::rotary_pairs || divides(row_head_dim, w.extent(0)),
                "pack_matrix: rows are those of heads of 2, 4, .. 64 dimensions");
  FATHOM_EXPECT(column_head_dim == 0 || divides(column_head_dim, w.extent(1)),
                "pack_matrix: columns are those of heads of 2, 4, .. 64 dimensions");
  const int64_t rows  = packed_rows(order, w.extent(0), row_head_dim);
  const int64_t depth = packed_depth(w.extent(1), column_head_dim), pieces = rows * depth / 8;
  if (pieces == 0) return;
  pack_matrix_kernel<<<blocks_for(pieces, kBlock), kBlock, 0, stream>>>(
      {w, order, row_head_dim, column_head_dim}, depth, pieces, reinterpret_cast<uint4*>(tiles));
  FATHOM_LAUNCHED();
}

void pack_bias(View<const bf16, 2> bias, RowOrder order, int64_t head_dim, int64_t padded_rows, float* out,
               StreamRef stream) {
  FATHOM_EXPECT(order != RowOrder::rotary_pairs || divides(head_dim, bias.extent(1)),
                "pack_bias: rows are those of heads of 2, 4, .. 64 dimensions");
  FATHOM_EXPECT(padded_rows >= packed_rows(order, bias.extent(1), head_dim),
                "pack_bias: out has room for [E, rows in packed order]");
  const int64_t n = bias.extent(0) * padded_rows;
  if (n == 0) return;
  pack_bias_kernel<<<blocks_for(n, kBlock), kBlock, 0, stream>>>(bias, order, head_dim, padded_rows, out);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::kernels
