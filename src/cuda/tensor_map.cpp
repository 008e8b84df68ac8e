#include "cuda/tensor_map.h"

#include <cudaTypedefs.h>

#include <string>

#include "core/expect.h"
#include "cuda/check.h"

namespace fathom {
namespace {

// Found by the runtime, so that nothing links the driver's library.
PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  FATHOM_CUDA(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || !encode)
    throw SystemError("the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode);
}

CUtensorMapDataType data_type(DType type) {
  switch (type) {
    case DType::fp32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::fp16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
      FATHOM_EXPECT(traits(type).bits == 8, std::string("no tensor map for ") + traits(type).name);
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

}  // namespace

CUtensorMap tensor_map(const void* data, DType type, const TensorAxis* axes, int rank, Swizzle swizzle,
                       bool to_tf32) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  constexpr int kMostAxes                               = 5;
  FATHOM_EXPECT(rank >= 1 && rank <= kMostAxes, "a tensor map has 1 to 5 axes");
  FATHOM_EXPECT(reinterpret_cast<uintptr_t>(data) % 16 == 0, "a tensor map's data are aligned to 16 bytes");
  FATHOM_EXPECT(!to_tf32 || type == DType::fp32, "only fp32 is rounded to tf32");
  FATHOM_EXPECT(axes[rank - 1].stride_bytes * 8 == traits(type).bits, "elements have no gaps between them");

  // Fastest axis first; its stride is not listed.
  cuuint64_t extents[kMostAxes], strides[kMostAxes];
  cuuint32_t box[kMostAxes], every_element[kMostAxes];
  std::string shape;
  for (int a = 0; a < rank; ++a) {
    const TensorAxis& axis = axes[rank - 1 - a];
    FATHOM_EXPECT(a == 0 || axis.stride_bytes % 16 == 0, "a tensor map's rows are aligned to 16 bytes");
    extents[a]       = static_cast<cuuint64_t>(axis.extent);
    box[a]           = static_cast<cuuint32_t>(axis.box);
    every_element[a] = 1;
    if (a > 0) strides[a - 1] = static_cast<cuuint64_t>(axis.stride_bytes);
    shape = std::to_string(axis.extent) + (a > 0 ? " x " : "") + shape;
  }

  CUtensorMap map;
  const CUresult result = encode(
      &map, to_tf32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : data_type(type), static_cast<cuuint32_t>(rank),
      const_cast<void*>(data), extents, strides, box, every_element, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle == Swizzle::bytes_128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);  // NONE: zeros
  if (result != CUDA_SUCCESS)
    throw SystemError("cuTensorMapEncodeTiled refused a tensor of " + shape + " (CUresult " +
                      std::to_string(result) + ")");
  return map;
}

CUtensorMap tensor_map(const void* data, DType type, int64_t rows, int64_t columns, int64_t row_bytes,
                       int box_rows, int box_columns, Swizzle swizzle, bool to_tf32) {
  const TensorAxis axes[] = {{rows, row_bytes, box_rows}, {columns, traits(type).bits / 8, box_columns}};
  return tensor_map(data, type, axes, 2, swizzle, to_tf32);
}

}  // namespace fathom
