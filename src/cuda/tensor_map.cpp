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

CUtensorMap tensor_map(const void* data, DType type, int64_t rows, int64_t columns, int64_t row_bytes,
                       int box_rows, int box_columns, Swizzle swizzle) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  FATHOM_EXPECT(reinterpret_cast<uintptr_t>(data) % 16 == 0 && row_bytes % 16 == 0,
                "a tensor map's rows are aligned to 16 bytes");

  // Fastest dimension first; its stride is the element size and is not listed.
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[]     = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t every_element[] = {1, 1};

  CUtensorMap map;
  const CUresult result =
      encode(&map, data_type(type), 2, const_cast<void*>(data), extents, strides, box, every_element,
             CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle == Swizzle::bytes_128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);  // NONE: zeros
  if (result != CUDA_SUCCESS)
    throw SystemError("cuTensorMapEncodeTiled refused a matrix of " + std::to_string(rows) + " x " +
                      std::to_string(columns) + " (CUresult " + std::to_string(result) + ")");
  return map;
}

}  // namespace fathom
