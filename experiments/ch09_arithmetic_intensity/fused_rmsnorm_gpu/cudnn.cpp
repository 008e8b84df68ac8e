// y(t, d) = x(t, d) weight(d) / rms(x(t))                  T x D, bf16
//
// bytes   4 T D    2 read + 2 written
// flops   4 T D
// limit   DRAM bandwidth
// idea    the library: cuDNN's normalization forward in mode RMS, the plan that its heuristics put first
#include "rmsnorm.h"

#include <memory>

#include "lab/problem.h"

#if __has_include(<cudnn.h>)
#include "experiments/cudnn_graph.h"
#endif

namespace fathom::lab::fused_rmsnorm_gpu {

#ifdef CUDNN_MAJOR
namespace {

struct NormPlan {
  CudnnGraph graph;
  CudnnGraph::Tensor x, weight, y;

  explicit NormPlan(const RmsNorm& p)
      : x(rows(p.x.extent(0), p)), weight(rows(1, p)), y(rows(p.x.extent(0), p)) {
    graph.rms_norm(x, weight, graph.scalar(kEpsilon), y);
    graph.build("RMSNorm in bf16");
  }
  // Four axes: tokens, features, and two of extent 1.
  CudnnGraph::Tensor rows(int64_t count, const RmsNorm& p) {
    return graph.tensor({count, p.x.extent(1), 1, 1}, {p.x.extent(1), 1, 1, 1}, CUDNN_DATA_BFLOAT16);
  }
};

}  // namespace

std::function<void(const RmsNorm&, StreamRef)> cudnn(const RmsNorm& p, StreamRef) {
  if (p.x.size() == 0) return [](const RmsNorm&, StreamRef) {};
  const auto plan = std::make_shared<NormPlan>(p);
  return [plan](const RmsNorm& q, StreamRef stream) {
    plan->graph.run(stream, {{plan->x, q.x.data()}, {plan->weight, q.weight.data()}, {plan->y, q.y.data()}});
  };
}
#else
std::function<void(const RmsNorm&, StreamRef)> cudnn(const RmsNorm&, StreamRef) {
  throw Unavailable("needs_library", "cudnn.h when Fathom is built");
}
#endif

}  // namespace fathom::lab::fused_rmsnorm_gpu
