// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 of 32 experts each, MXFP4
//
// bytes   423 MB of weights at width 2880; here another 1.6 GB written and read as bf16, through one buffer
//         of 33 MB that L2 can hold, and products in fp32
// flops   6 width^2 a slot
// limit   bf16 peak of the tensor cores. H200: T = 2048 is 408 GFLOP, 0.45 ms at 900 TFLOP/s
// idea    none yet: a library call for each expert. cuBLAS multiplies bf16, so an expert's matrix is
//         dequantized first. It takes the number of rows on the host: the call waits for these numbers once
#include <array>
#include <memory>

#include "cuda/check.h"
#include "cuda/cublas.h"
#include "cuda/device.h"
#include "epilogues.h"
#include "lab/problem.h"
#include "sorted_rows.h"

namespace fathom::lab::grouped_experts_gpu {
namespace {

// products = x w^T, all row-major.
void multiply(cublasContext* handle, View<const bf16, 2> x, View<const bf16, 2> w, View<float, 2> products) {
  const auto n = static_cast<int>(x.extent(0)), outputs = static_cast<int>(w.extent(0)),
             inputs = static_cast<int>(w.extent(1));
  // cuBLAS is column-major: it multiplies the transposes, in reverse order.
  const float one = 1, zero = 0;
  FATHOM_CUBLAS(cublas()->gemm_ex(handle, CUBLAS_OP_T, CUBLAS_OP_N, outputs, n, inputs, &one, w.data(),
                                  CUDA_R_16BF, inputs, x.data(), CUDA_R_16BF, inputs, &zero, products.data(),
                                  CUDA_R_32F, outputs, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

// Dequantizes an expert's matrix into the buffer that all experts share.
View<const bf16, 2> dequantized(const mxfp4::Matrices& w, int64_t expert, bf16* to, StreamRef stream) {
  const int64_t outputs = w.blocks.extent(1), groups = w.blocks.extent(2);
  mxfp4::dequantize({&w.blocks(expert, 0, 0, 0), {1, outputs, groups, 16}},
                    {&w.scales(expert, 0, 0), {1, outputs, groups}}, to, stream);
  return {to, {outputs, 32 * groups}};
}

// CUDA loads a kernel when it is first used, and cuBLAS chooses kernels by the number of rows, which each
// round draws anew. So each number of rows is multiplied once, up to half of the tokens: the likeliest expert
// gets a quarter.
void load_kernels(cublasContext* handle, const GroupedExperts& p, StreamRef stream) {
  const int64_t tokens = p.x.extent(0), width = p.x.extent(1);
  FATHOM_CUBLAS(cublas()->set_stream(handle, stream));
  for (int64_t n = 1; n <= (tokens + 1) / 2; ++n)
    for (const int64_t outputs : {2 * width, width})
      multiply(handle, {p.sorted.data(), {n, width}}, {p.numbers.data(), {outputs, width}},
               {p.products.data(), {n, outputs}});
  FATHOM_CUDA(cudaStreamSynchronize(stream));
}

}  // namespace

std::function<void(const GroupedExperts&, StreamRef)> one_gemm_each(const GroupedExperts& problem,
                                                                    StreamRef stream) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  load_kernels(handle.get(), problem, stream);
  return [handle](const GroupedExperts& p, StreamRef stream) {
    if (p.x.extent(0) == 0) return;
    const int64_t width            = p.x.extent(1);
    const kernels::ExpertRows rows = sort_and_gather(p, stream);
    std::array<int32_t, kExperts + 1> first;
    find_device({0})->to_host(first.data(), rows.offsets.data(), sizeof first);
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    for (int64_t e = 0; e < kExperts; ++e) {
      const int64_t begin = first[static_cast<size_t>(e)], n = first[static_cast<size_t>(e + 1)] - begin;
      if (n == 0) continue;
      const View<bf16, 2> a(&p.a(begin, 0), {n, width});
      const View<float, 2> up(p.products.data(), {n, 2 * width}), down(p.products.data(), {n, width});
      multiply(handle.get(), {&p.sorted(begin, 0), {n, width}},
               dequantized(p.up, e, p.numbers.data(), stream), up);
      gate(up, p.up.packed.bias + e * 2 * width, a, stream);
      multiply(handle.get(), a, dequantized(p.down, e, p.numbers.data(), stream), down);
      weigh(down, p.down.packed.bias + e * width, {&rows.sorted_ids(begin), {n}}, p.weights, p.slots, stream);
    }
  };
}

}  // namespace fathom::lab::grouped_experts_gpu
