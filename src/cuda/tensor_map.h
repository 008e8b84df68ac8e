// Tensor maps: TMA's descriptors of matrices and tensors in device memory. Only builds with CUDA have them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/dtype.h"

namespace fathom {

enum class Swizzle { none, bytes_128 };

// Describes a matrix of rows x columns elements, with `row_bytes` from one row to the next, that is copied in
// boxes of box_rows x box_columns. A box has no gaps in shared memory and may extend beyond the matrix.
//   data, row_bytes    multiples of 16
//   box_rows, box_columns   1 to 256; a box's row is a multiple of 16 bytes
//   swizzle            bytes_128: a box's row is 128 bytes, and 16-byte piece c of row r is at c ^ (r % 8),
//   the
//                      layout that wgmma reads; the box starts at a multiple of 1024 bytes
//   to_tf32            fp32 numbers are rounded to tf32 when they are loaded
// Types: fp32, bf16, fp16, and one-byte types. Computed on the host, without a call to the GPU. Throws
// SystemError where the driver is too old or refuses.
CUtensorMap tensor_map(const void* data, DType type, int64_t rows, int64_t columns, int64_t row_bytes,
                       int box_rows, int box_columns, Swizzle swizzle = Swizzle::none, bool to_tf32 = false);

// An axis of a tensor that is copied in boxes. The stride is a multiple of 16 bytes, that of the last axis
// the element's size; the box takes 1 to 256 elements, and on the last axis a multiple of 16 bytes.
struct TensorAxis {
  int64_t extent, stride_bytes;
  int box;
};

// The same of a tensor with 1 to 5 axes, the slowest first. A box ends at the edge of each of them: with a
// batch as an axis of its own, rows behind the last of a sequence are zeros and not the next sequence.
CUtensorMap tensor_map(const void* data, DType type, const TensorAxis* axes, int rank, Swizzle swizzle,
                       bool to_tf32 = false);

template <int kRank>
CUtensorMap tensor_map(const void* data, DType type, const TensorAxis (&axes)[kRank],
                       Swizzle swizzle = Swizzle::none) {
  static_assert(kRank <= 5);
  return tensor_map(data, type, axes, kRank, swizzle);
}

}  // namespace fathom
