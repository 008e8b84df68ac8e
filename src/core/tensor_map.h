// Tensor maps: what the copy engine (TMA) knows of a matrix in device memory. Only builds with CUDA have
// them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/dtype.h"

namespace fathom {

enum class Swizzle { none, bytes_128 };

// Of rows x columns elements, where rows begin `row_bytes` apart, copied in boxes of box_rows x box_columns
// that lie in shared memory without gaps. A box may stick out of the matrix.
//   data, row_bytes    multiples of 16
//   box_rows, box_columns   1 to 256; a box's row is a multiple of 16 bytes
//   swizzle            bytes_128: a box's row is 128 bytes, and piece c of 16 bytes of row r lies at
//                      c ^ (r % 8), as wgmma reads it; the box begins at a multiple of 1024 bytes
// fp32, bf16, fp16, and one-byte types. Arithmetic on the host: the GPU is not asked, and nothing waits.
// Throws SystemError where the driver is too old, or refuses.
CUtensorMap tensor_map(const void* data, DType type, int64_t rows, int64_t columns, int64_t row_bytes,
                       int box_rows, int box_columns, Swizzle swizzle = Swizzle::none);

}  // namespace fathom
