// out(i, n) = sum_k x(i, k) w(e(i), n, k)               rows sorted by expert, bf16, 32 experts
//
// bytes   1.06 GB of weights at width 2880; 17 KB a row
// flops   4 width^2 a row
// limit   bf16 peak of the tensor cores. H200: 2048 tokens are 272 GFLOP, 0.30 ms at 900 TFLOP/s
// idea    the library's grouped product: a group for each expert that has rows, all in one call, so that no
//         expert waits for another. Sizes are on the host, pointers on the GPU
#include <memory>
#include <vector>

#include "cuda/cublas.h"
#include "cuda/device_buffer.h"
#include "cuda/library.h"
#include "grouped_gemm.h"
#include "lab/problem.h"

namespace fathom::lab::grouped_gemm_gpu {
namespace {

using Function = decltype(&::cublasGemmGroupedBatchedEx);

Function grouped_product() {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const auto library   = open_cuda_library("cublas", CUBLAS_VER_MAJOR);
  const Function found = library ? library->function<Function>("cublasGemmGroupedBatchedEx") : nullptr;
  if (!found) throw Unavailable("needs_library", cublas()->path + " has no cublasGemmGroupedBatchedEx");
  return found;
}

struct Pointers {  // of a group each
  const void* weights[kExperts];
  const void* rows[kExperts];
  void* products[kExperts];
};

}  // namespace

std::function<void(const GroupedGemm&, StreamRef)> cublas_grouped(const GroupedGemm&, StreamRef) {
  const Function multiply                     = grouped_product();
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  Device& device                              = *find_device({0});
  const auto on_host                          = std::make_shared<PinnedBuffer<Pointers>>(device, 1);
  const auto on_gpu                           = std::make_shared<DeviceBuffer<Pointers>>(device, 1);
  return [=, &device](const GroupedGemm& p, StreamRef stream) {
    if (p.x.extent(0) == 0) return;
    const int inputs = static_cast<int>(p.x.extent(1)), outputs = static_cast<int>(p.out.extent(1));
    const auto offsets = offsets_on_host(p);  // waits, so that the last call has read its pointers
    Pointers& to       = *on_host->data();
    std::vector<int> rows;
    for (int64_t e = 0; e < kExperts; ++e) {
      const int begin = offsets[static_cast<size_t>(e)], n = offsets[static_cast<size_t>(e + 1)] - begin;
      if (n == 0) continue;
      to.weights[rows.size()]  = &p.w(e, 0, 0);
      to.rows[rows.size()]     = &p.x(begin, 0);
      to.products[rows.size()] = &p.out(begin, 0);
      rows.push_back(n);
    }
    device.enqueue_to_device(on_gpu->data(), &to, sizeof to);
    const size_t groups = rows.size();
    const std::vector<int> m(groups, outputs), k(groups, inputs), size(groups, 1);
    const std::vector<float> one(groups, 1), zero(groups, 0);
    const std::vector<cublasOperation_t> transposed(groups, CUBLAS_OP_T), plain(groups, CUBLAS_OP_N);
    const Pointers& on = *on_gpu->data();
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    FATHOM_CUBLAS(multiply(handle.get(), transposed.data(), plain.data(), m.data(), rows.data(), k.data(),
                           one.data(), on.weights, CUDA_R_16BF, k.data(), on.rows, CUDA_R_16BF, k.data(),
                           zero.data(), on.products, CUDA_R_16BF, m.data(), static_cast<int>(groups),
                           size.data(), CUBLAS_COMPUTE_32F));
  };
}

}  // namespace fathom::lab::grouped_gemm_gpu
