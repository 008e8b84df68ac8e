// out[p] = a[p] b[p]          batch products of size x size, fp32
//
// bytes   12 batch size^2
// flops   2 batch size^3
// limit   FMA peak of one core
// idea    the second yardstick: oneDNN's matmul with a batch dimension, compiled for this size when it is
//         prepared; on one thread
#include "experiments/onednn.h"
#include "gemm_batched.h"

namespace fathom::lab::gemm_batched_cpu {

Launch<GemmBatched> onednn_matmul([[maybe_unused]] const GemmBatched& p, Context&) {
#ifdef FATHOM_HAS_ONEDNN
  if (p.out.size() == 0) return [](const GemmBatched&, Context&) {};
  const dnnl_memory_desc_t matrices = onednn::tensor({p.batch, p.size, p.size});
  const SystemLibrary library(onednn::kLibrary);
  const auto init = library.function<decltype(&::dnnl_matmul_desc_init)>("dnnl_matmul_desc_init");
  dnnl_matmul_desc_t operation;
  onednn::expect(init(&operation, &matrices, &matrices, nullptr, &matrices), "a batched product");
  const auto product = std::make_shared<onednn::Primitive>(
      &operation, std::vector<std::pair<int, dnnl_memory_desc_t>>{
                      {DNNL_ARG_SRC, matrices}, {DNNL_ARG_WEIGHTS, matrices}, {DNNL_ARG_DST, matrices}});
  return [product](const GemmBatched& q, Context&) { (*product)(1, {q.a.data(), q.b.data(), q.out.data()}); };
#else
  onednn::missing_at_build();
#endif
}

}  // namespace fathom::lab::gemm_batched_cpu
