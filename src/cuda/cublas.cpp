#include "cuda/cublas.h"

#include <fmt/format.h>

#include "core/expect.h"
#include "cuda/library.h"

namespace fathom {
namespace {

// Fails to compile where our types are no overload of the header.
using SameGemmEx           = decltype(static_cast<CublasGemmEx>(&::cublasGemmEx));
using SameGemmStridedBatch = decltype(static_cast<CublasGemmStridedBatchedEx>(&::cublasGemmStridedBatchedEx));
static_assert(std::is_pointer_v<SameGemmEx> && std::is_pointer_v<SameGemmStridedBatch>);

Result<Cublas> open_cublas() {
  const auto library = open_cuda_library("cublas", CUBLAS_VER_MAJOR);
  if (!library) return library.error();
  const auto lt_library = open_cuda_library("cublasLt", CUBLAS_VER_MAJOR);
  if (!lt_library) return lt_library.error();

  Cublas table{.path = library->path, .lt_path = lt_library->path};
  std::string absent;
  const auto fetch = [&absent](const CudaLibrary& from, auto& pointer, const char* symbol) {
    pointer = from.function<std::remove_reference_t<decltype(pointer)>>(symbol);
    if (!pointer && absent.empty()) absent = fmt::format("{} has no {}", from.path, symbol);
  };
  fetch(*library, table.create, "cublasCreate_v2");
  fetch(*library, table.destroy, "cublasDestroy_v2");
  fetch(*library, table.set_stream, "cublasSetStream_v2");
  fetch(*library, table.set_math_mode, "cublasSetMathMode");
  fetch(*library, table.sgemm, "cublasSgemm_v2");
  fetch(*library, table.sgemm_strided_batched, "cublasSgemmStridedBatched");
  fetch(*library, table.gemm_ex, "cublasGemmEx");
  fetch(*library, table.gemm_strided_batched_ex, "cublasGemmStridedBatchedEx");
  fetch(*library, table.get_status_string, "cublasGetStatusString");
  fetch(*lt_library, table.lt_create, "cublasLtCreate");
  fetch(*lt_library, table.lt_destroy, "cublasLtDestroy");
  fetch(*lt_library, table.lt_matmul, "cublasLtMatmul");
  fetch(*lt_library, table.lt_matmul_algo_get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  fetch(*lt_library, table.lt_matmul_desc_create, "cublasLtMatmulDescCreate");
  fetch(*lt_library, table.lt_matmul_desc_destroy, "cublasLtMatmulDescDestroy");
  fetch(*lt_library, table.lt_matmul_desc_set_attribute, "cublasLtMatmulDescSetAttribute");
  fetch(*lt_library, table.lt_matrix_layout_create, "cublasLtMatrixLayoutCreate");
  fetch(*lt_library, table.lt_matrix_layout_destroy, "cublasLtMatrixLayoutDestroy");
  fetch(*lt_library, table.lt_matmul_preference_create, "cublasLtMatmulPreferenceCreate");
  fetch(*lt_library, table.lt_matmul_preference_destroy, "cublasLtMatmulPreferenceDestroy");
  fetch(*lt_library, table.lt_matmul_preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute");
  if (!absent.empty()) return Error{absent};
  return table;
}

const Result<Cublas>& opened() {
  static const Result<Cublas> once = open_cublas();
  return once;
}

}  // namespace

const Cublas* cublas() { return opened() ? &*opened() : nullptr; }
std::string why_no_cublas() { return opened() ? "" : opened().error().message; }

void cublas_failed(const char* call, cublasStatus_t status, const char* file, int line) {
  const char* words = cublas() ? cublas()->get_status_string(status) : "";
  throw SystemError(fmt::format("{}: {} ({}:{})", call, words, file, line));
}

CublasHandle make_cublas_handle() {
  FATHOM_EXPECT(cublas(), why_no_cublas());
  cublasHandle_t handle = nullptr;
  FATHOM_CUBLAS(cublas()->create(&handle));
  return CublasHandle(handle);
}

}  // namespace fathom
