// cuBLAS and cuBLASLt as a table of function pointers, opened at the first use: nothing links them. Only
// builds with CUDA have this. Members have cuBLAS's names without the prefix.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include <memory>
#include <string>
#include <type_traits>

namespace fathom {

// cublasGemmEx and its batched form are overloaded in the header, so decltype cannot name them.
using CublasGemmEx = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                                        int k, const void* alpha, const void* a, cudaDataType, int lda,
                                        const void* b, cudaDataType, int ldb, const void* beta, void* c,
                                        cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t);
using CublasGemmStridedBatchedEx = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t,
                                                      int m, int n, int k, const void* alpha, const void* a,
                                                      cudaDataType, int lda, long long stride_a,
                                                      const void* b, cudaDataType, int ldb,
                                                      long long stride_b, const void* beta, void* c,
                                                      cudaDataType, int ldc, long long stride_c, int batch,
                                                      cublasComputeType_t, cublasGemmAlgo_t);

struct Cublas {
  std::string path, lt_path;  // where the libraries were found

  decltype(&::cublasCreate_v2) create                          = nullptr;
  decltype(&::cublasDestroy_v2) destroy                        = nullptr;
  decltype(&::cublasSetStream_v2) set_stream                   = nullptr;
  decltype(&::cublasSetMathMode) set_math_mode                 = nullptr;
  decltype(&::cublasSgemm_v2) sgemm                            = nullptr;
  decltype(&::cublasSgemmStridedBatched) sgemm_strided_batched = nullptr;
  CublasGemmEx gemm_ex                                         = nullptr;
  CublasGemmStridedBatchedEx gemm_strided_batched_ex           = nullptr;
  decltype(&::cublasGetStatusString) get_status_string         = nullptr;

  decltype(&::cublasLtCreate) lt_create                                                = nullptr;
  decltype(&::cublasLtDestroy) lt_destroy                                              = nullptr;
  decltype(&::cublasLtMatmul) lt_matmul                                                = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) lt_matmul_algo_get_heuristic             = nullptr;
  decltype(&::cublasLtMatmulDescCreate) lt_matmul_desc_create                          = nullptr;
  decltype(&::cublasLtMatmulDescDestroy) lt_matmul_desc_destroy                        = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) lt_matmul_desc_set_attribute             = nullptr;
  decltype(&::cublasLtMatrixLayoutCreate) lt_matrix_layout_create                      = nullptr;
  decltype(&::cublasLtMatrixLayoutDestroy) lt_matrix_layout_destroy                    = nullptr;
  decltype(&::cublasLtMatmulPreferenceCreate) lt_matmul_preference_create              = nullptr;
  decltype(&::cublasLtMatmulPreferenceDestroy) lt_matmul_preference_destroy            = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) lt_matmul_preference_set_attribute = nullptr;
};

// Opened at the first call. Null where the library is missing or lacks one of these functions;
// why_no_cublas() then says why in a sentence.
const Cublas* cublas();
std::string why_no_cublas();

// Throws SystemError with the call, cuBLAS's text of the status, file and line.
void cublas_failed(const char* call, cublasStatus_t status, const char* file, int line);

// Owners of cuBLAS objects. One exists only where cublas() is not null.
template <auto Cublas::*destroy>
struct CublasDeleter {
  template <class T>
  void operator()(T* owned) const {
    (void)(cublas()->*destroy)(owned);
  }
};
template <class Handle, auto Cublas::*destroy>
using CublasOwner = std::unique_ptr<std::remove_pointer_t<Handle>, CublasDeleter<destroy>>;

// A handle of the current GPU. It allocates workspace there: make it while preparing, never while timing. Not
// for two threads at once.
using CublasHandle = CublasOwner<cublasHandle_t, &Cublas::destroy>;
CublasHandle make_cublas_handle();

}  // namespace fathom

#define FATHOM_CUBLAS(call)                                              \
  do {                                                                   \
    const cublasStatus_t fathom_status = (call);                         \
    if (fathom_status != CUBLAS_STATUS_SUCCESS)                          \
      ::fathom::cublas_failed(#call, fathom_status, __FILE__, __LINE__); \
  } while (false)
