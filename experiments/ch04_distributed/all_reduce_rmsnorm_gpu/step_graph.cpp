#include "step_graph.h"

#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <utility>

#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/device_buffer.h"
#include "cuda/graph.h"
#include "kernels/norm/add_rmsnorm.h"

namespace fathom::lab::all_reduce_rmsnorm_gpu {

Call captured(const NormedSums& p, Context& context, NormedSum sum) {
  // What the graph uses outlives it.
  struct Captured {
    NormedSum sum;
    DeviceBuffer<int32_t> pass;  // not of the arena, which is overwritten between samples
    std::optional<CudaGraph> graph;
  };
  Device& device = *context.rank->device();
  const auto kept =
      std::make_shared<Captured>(Captured{.sum = std::move(sum), .pass = {device, 1}, .graph = {}});
  device.set_words(kept->pass.data(), kept->pass.bytes(), 0);
  const auto call = [&](int i) {
    return kernels::CollectiveCall{
        .pass = View<const int32_t, 1>(kept->pass.view()), .index = i, .count = kSums + 2};
  };
  const auto rows  = [&](int i) { kept->sum(p.in, p.x, p.y, call(i), context.stream); };
  const auto nonce = [&](int i) {
    kept->sum(View<const float, 2>(p.nonce), p.nonces, p.nonce_norm, call(i), context.stream);
  };
  // Loads the kernels, which is not allowed during capture. One sum at a time: a kernel that is loaded while
  // another one waits for the other rank may wait for that.
  count(kept->pass.view(), context.stream);
  FATHOM_CUDA(cudaStreamSynchronize(context.stream));
  rows(0);
  FATHOM_CUDA(cudaStreamSynchronize(context.stream));
  context.rank->barrier();
  nonce(1);
  FATHOM_CUDA(cudaStreamSynchronize(context.stream));
  context.rank->barrier();  // the other ranks have done so too
  kept->graph.emplace(context.stream, [&] {
    for (const View<float, 2>& x : {p.x, p.nonces})
      FATHOM_CUDA(cudaMemsetAsync(x.data(), 0, static_cast<size_t>(x.bytes()), context.stream));
    count(kept->pass.view(), context.stream);
    for (int i = 0; i < kSums; ++i) rows(i);
    for (int i = kSums; i < kSums + 2; ++i) nonce(i);
  });
  return [kept, of = p.x.data()](const NormedSums& q, Context& c) {
    FATHOM_EXPECT(q.x.data() == of, "a graph is launched on the memory that it was captured with");
    kept->graph->launch(c.stream);
  };
}

void load_add_rmsnorm(const NormedSums& p, Context& context) {
  kernels::add_rmsnorm(p.x, nothing(), p.weight, kEpsilon, p.y, context.stream);
  kernels::add_rmsnorm(p.nonces, nothing(), p.weight, kEpsilon, p.nonce_norm, context.stream);
  FATHOM_CUDA(cudaStreamSynchronize(context.stream));
}

}  // namespace fathom::lab::all_reduce_rmsnorm_gpu
