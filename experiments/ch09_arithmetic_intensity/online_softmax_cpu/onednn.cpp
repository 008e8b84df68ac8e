// out = softmax of each row                  R x C, fp32
//
// bytes   8 R C
// flops   as in three_pass, where the library's exponential is its own
// limit   bandwidth of the level that holds the rows
// idea    the yardstick: oneDNN's softmax, generated for this CPU and shape when it is prepared. On one
//         thread: its OpenMP threads spin for milliseconds after a call, beside whatever variant is next
#include "experiments/onednn.h"
#include "softmax.h"

namespace fathom::lab::online_softmax_cpu {

Launch<Softmax> onednn_softmax([[maybe_unused]] const Softmax& p, Context&) {
#ifdef FATHOM_HAS_ONEDNN
  if (p.out.size() == 0) return [](const Softmax&, Context&) {};
  const dnnl_memory_desc_t rows = onednn::tensor({p.in.extent(0), p.in.extent(1)});
  const SystemLibrary library(onednn::kLibrary);
  const auto init =
      library.function<decltype(&::dnnl_softmax_v2_forward_desc_init)>("dnnl_softmax_v2_forward_desc_init");
  dnnl_softmax_v2_desc_t operation;
  onednn::expect(init(&operation, dnnl_forward_inference, dnnl_softmax_accurate, &rows, &rows, 1),
                 "a softmax of rows");
  const auto softmax = std::make_shared<onednn::Primitive>(
      &operation,
      std::vector<std::pair<int, dnnl_memory_desc_t>>{{DNNL_ARG_SRC, rows}, {DNNL_ARG_DST, rows}});
  return [softmax](const Softmax& q, Context&) { (*softmax)(1, {q.in.data(), q.out.data()}); };
#else
  onednn::missing_at_build();
#endif
}

}  // namespace fathom::lab::online_softmax_cpu
