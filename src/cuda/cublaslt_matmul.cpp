#include "cuda/cublaslt_matmul.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/expect.h"
#include "cuda/cublas.h"
#include "cuda/event.h"

namespace fathom {
namespace {

constexpr size_t kWorkspaceLimit = size_t{32} << 20;  // NVIDIA's recommendation for Hopper

using LtHandle     = CublasOwner<cublasLtHandle_t, &Cublas::lt_destroy>;
using LtDesc       = CublasOwner<cublasLtMatmulDesc_t, &Cublas::lt_matmul_desc_destroy>;
using LtLayout     = CublasOwner<cublasLtMatrixLayout_t, &Cublas::lt_matrix_layout_destroy>;
using LtPreference = CublasOwner<cublasLtMatmulPreference_t, &Cublas::lt_matmul_preference_destroy>;

cudaDataType_t data_type(DType type) {
  switch (type) {
    case DType::fp32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::fp16:
      return CUDA_R_16F;
    case DType::fp8_e4m3:
      return CUDA_R_8F_E4M3;
    default:
      FATHOM_EXPECT(false, std::string("LtMatmul does not know ") + traits(type).name);
      return CUDA_R_32F;
  }
}

LtHandle make_handle() {
  cublasLtHandle_t handle = nullptr;
  FATHOM_CUBLAS(cublas()->lt_create(&handle));
  return LtHandle(handle);
}

template <class T>
void set(const LtDesc& desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  FATHOM_CUBLAS(cublas()->lt_matmul_desc_set_attribute(desc.get(), attribute, &value, sizeof value));
}

LtDesc make_desc(DType in, bool tf32, bool block_scales) {
  cublasLtMatmulDesc_t made = nullptr;
  FATHOM_CUBLAS(cublas()->lt_matmul_desc_create(
      &made, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  LtDesc desc(made);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  // Scales of blocks are not supported with fast accumulation.
  if (in == DType::fp8_e4m3 && !block_scales) set(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  return desc;
}

// Column-major, cuBLAS's order.
LtLayout make_layout(DType type, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  FATHOM_CUBLAS(cublas()->lt_matrix_layout_create(&layout, data_type(type), static_cast<uint64_t>(rows),
                                                  static_cast<uint64_t>(columns), rows));
  return LtLayout(layout);
}

LtPreference make_preference() {
  cublasLtMatmulPreference_t made = nullptr;
  FATHOM_CUBLAS(cublas()->lt_matmul_preference_create(&made));
  LtPreference preference(made);
  FATHOM_CUBLAS(cublas()->lt_matmul_preference_set_attribute(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                             &kWorkspaceLimit, sizeof kWorkspaceLimit));
  constexpr uint32_t kAlignment = 16;  // of run()'s pointers; the default is 256
  for (const auto of :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    FATHOM_CUBLAS(cublas()->lt_matmul_preference_set_attribute(made, of, &kAlignment, sizeof kAlignment));
  return preference;
}

}  // namespace

struct LtMatmul::Plan {
  LtHandle handle;
  LtDesc desc;
  LtLayout a, b, d;                                      // in cuBLAS's roles
  std::vector<cublasLtMatmulHeuristicResult_t> offered;  // best first, as the heuristic has it
  size_t chosen = 0;
};

// A row-major matrix is its transpose in column-major order. cuBLAS therefore computes d^T (n x m) = b a^T:
// its first operand is b, stored k x n and transposed, its second is a, stored k x m.
LtMatmul::LtMatmul(DType in, DType out, bool tf32, int64_t m, int64_t n, int64_t k,
                   const BlockScales* scales) {
  FATHOM_EXPECT(m > 0 && n > 0 && k > 0, "LtMatmul wants a product of at least 1 x 1 x 1");
  FATHOM_EXPECT(!tf32 || in == DType::fp32, "tf32 is a way to multiply fp32");
  FATHOM_EXPECT(!scales || in == DType::fp8_e4m3, "scales of blocks are for e4m3");
  if (!cublas()) throw SystemError(why_no_cublas());

  plan_ = std::make_unique<Plan>(Plan{.handle  = make_handle(),
                                      .desc    = make_desc(in, tf32, scales != nullptr),
                                      .a       = make_layout(in, k, n),
                                      .b       = make_layout(in, k, m),
                                      .d       = make_layout(out, n, m),
                                      .offered = {}});
  if (scales) {
    set(plan_->desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F});
    set(plan_->desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F});
    set_scales(*scales);
  }
  plan_->offered.resize(kCandidates);
  int found                     = 0;
  const LtPreference preference = make_preference();
  FATHOM_CUBLAS(cublas()->lt_matmul_algo_get_heuristic(
      plan_->handle.get(), plan_->desc.get(), plan_->a.get(), plan_->b.get(), plan_->d.get(), plan_->d.get(),
      preference.get(), kCandidates, plan_->offered.data(), &found));
  if (found == 0)
    cublas_failed("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED, __FILE__, __LINE__);
  plan_->offered.resize(static_cast<size_t>(found));
}

LtMatmul::~LtMatmul()                              = default;
LtMatmul::LtMatmul(LtMatmul&&) noexcept            = default;
LtMatmul& LtMatmul::operator=(LtMatmul&&) noexcept = default;

size_t LtMatmul::workspace_bytes() const {
  size_t most = 0;
  for (const auto& algorithm : plan_->offered) most = std::max(most, algorithm.workspaceSize);
  return most;
}

void LtMatmul::set_scales(const BlockScales& scales) { set_scales(TensorScales{scales.a, scales.b}); }

void LtMatmul::set_scales(const TensorScales& scales) {
  set(plan_->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(scales.b));
  set(plan_->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(scales.a));
}

void LtMatmul::tune(const void* a, const void* b, void* d, void* workspace, StreamRef stream) {
  constexpr int kRounds = 3;
  const Event begin, end;
  std::vector<double> fastest(plan_->offered.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round <= kRounds; ++round)  // the first one warms up
    for (plan_->chosen = 0; plan_->chosen < plan_->offered.size(); ++plan_->chosen) {
      begin.record(stream);
      run(a, b, d, workspace, stream);
      end.record(stream);
      end.synchronize();
      if (round > 0) fastest[plan_->chosen] = std::min(fastest[plan_->chosen], elapsed_ms(begin, end));
    }
  plan_->chosen = static_cast<size_t>(std::min_element(fastest.begin(), fastest.end()) - fastest.begin());
}

void LtMatmul::run(const void* a, const void* b, void* d, void* workspace, StreamRef stream) const {
  const auto& algorithm = plan_->offered[plan_->chosen];
  const float one = 1, zero = 0;
  FATHOM_CUBLAS(cublas()->lt_matmul(plan_->handle.get(), plan_->desc.get(), &one, b, plan_->a.get(), a,
                                    plan_->b.get(), &zero, d, plan_->d.get(), d, plan_->d.get(),
                                    &algorithm.algo, workspace, algorithm.workspaceSize, stream));
}

}  // namespace fathom
