#include "step_graph.h"

#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <utility>

#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/graph.h"

namespace fathom::lab::all_reduce_gpu {

Call captured(const Sums& p, Context& context, SumInto sum) {
  // What the graph uses outlives it.
  struct Captured {
    SumInto sum;
    std::optional<CudaGraph> graph;
  };
  const auto kept    = std::make_shared<Captured>(Captured{.sum = std::move(sum), .graph = {}});
  const auto row     = [](View<float, 1> v) { return View<float, 2>(v.data(), {1, v.extent(0)}); };
  const auto enqueue = [&, stream = context.stream] {
    for (const View<float, 2>& x : {p.out, row(p.nonces)})
      FATHOM_CUDA(cudaMemsetAsync(x.data(), 0, static_cast<size_t>(x.bytes()), stream));
    for (int i = 0; i < kSums; ++i) kept->sum(p.in, p.out, i, stream);
    for (int i = kSums; i < kSums + 2; ++i)
      kept->sum(View<const float, 2>(row(p.nonce)), row(p.nonces), i, stream);
  };
  enqueue();  // loads the kernels, which is not allowed during capture
  FATHOM_CUDA(cudaStreamSynchronize(context.stream));
  context.rank->barrier();  // the other ranks have done so too
  kept->graph.emplace(context.stream, enqueue);
  return [kept, of = p.out.data()](const Sums& q, Context& c) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    kept->graph->launch(c.stream);
  };
}

}  // namespace fathom::lab::all_reduce_gpu
