// x = (x xor step) * factor + l, 24 times         the step changes from call to call
//
// bytes   8 n a kernel, in L2
// flops   0
// limit   none: the question is how the GPU gets the step
// idea    no capture: cudaGraphExecKernelNodeSetParams gives each of the 24 nodes its new arguments
#include <array>

#include "captured.h"
#include "chain.cuh"
#include "core/expect.h"

namespace fathom::lab::graph_update {
namespace {

struct Nodes {
  Graph graph;  // the nodes live as long as it does
  GraphExec exec;
  std::array<cudaGraphNode_t, kKernels> nodes{};
};

// cudaGraphGetNodes promises no order, so the nodes of the chain are followed
// from the root along the edges.
std::array<cudaGraphNode_t, kKernels> in_order(const Graph& graph) {
  std::array<cudaGraphNode_t, kKernels> nodes{};
  size_t count = 1;
  FATHOM_CUDA(cudaGraphGetRootNodes(graph.get(), &nodes[0], &count));
  for (int l = 1; l < kKernels; ++l) {
    count = 1;
    FATHOM_CUDA(cudaGraphNodeGetDependentNodes(nodes[l - 1], &nodes[l], nullptr, &count));
    FATHOM_EXPECT(count == 1, "the captured kernels are no chain");
  }
  return nodes;
}

}  // namespace

Call node_params(const Chain& p, StreamRef stream) {
  launched(p, stream);  // loads the kernel, which is not allowed during capture
  if (p.in.size() == 0) return [](const Chain&, StreamRef) {};
  auto made   = std::make_shared<Nodes>();
  made->graph = capture(stream, [&] { launched(p, stream); });
  made->exec  = instantiate(made->graph);
  made->nodes = in_order(made->graph);
  return [made](const Chain& q, StreamRef into) {
    int n = static_cast<int>(q.in.size());
    Argument step{q.step(0)};
    uint32_t* out        = q.out.data();
    const uint32_t* from = q.in.data();
    for (uint32_t l = 0; l < kKernels; ++l) {
      void* arguments[]           = {&from, &out, &n, &l, &step};  // copied by the call
      cudaKernelNodeParams params = {};
      params.func                 = reinterpret_cast<void*>(mix_kernel<Argument>);
      params.gridDim              = dim3(blocks_for(n, kThreads));
      params.blockDim             = dim3(kThreads);
      params.kernelParams         = arguments;
      FATHOM_CUDA(cudaGraphExecKernelNodeSetParams(made->exec.get(), made->nodes[l], &params));
      from = out;
    }
    FATHOM_CUDA(cudaGraphLaunch(made->exec.get(), into));
  };
}

}  // namespace fathom::lab::graph_update
