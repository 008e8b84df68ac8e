// out(t, h) = softmax(q(t, h) k' / 8, sink(h)) v       causal, 64 heads over 8 key-value heads of 64, bf16
//
// bytes   16384 a token for q and out, 2048 for keys and values, and 4096 more to gather these
// flops   16384 for each pair of a token and a position in its reach
// limit   the tensor cores, and as nearly the special-function units: 64 exponentials a product of 64
// idea    the library: cuDNN's fused attention, with sinks (9.13 and later). cuDNN reads pages too, but in
//         plain rows, and the engine's are swizzled; so keys and values are gathered first
#include "cudnn_attention.h"

#include <limits>
#include <memory>

#include "gather_softmax.h"
#include "lab/problem.h"

#if __has_include(<cudnn.h>)
#include "experiments/cudnn_graph.h"
#endif

namespace fathom::lab::flash_attention_gpu {

#ifdef CUDNN_MAJOR
namespace {

using Tensor = CudnnGraph::Tensor;

constexpr int64_t kVersionWithSinks = 91300;
constexpr float kMasked             = -std::numeric_limits<float>::infinity();

// The operations that cuDNN recognises as attention and fuses. The logarithm of the sum, which training
// needs and nobody reads here, is part of that pattern.
struct AttentionPlan {
  CudnnGraph graph;
  Tensor q, k, v, sinks, out;
  DeviceBuffer<bf16> gathered;  // (keys, values) x kKvHeads x T x kHeadDim

  explicit AttentionPlan(const PromptAttention& p)
      : q(heads_of_tokens(p.tokens())),
        k(graph.tensor({1, kKvHeads, kHeadDim, p.tokens()},
                       {kKvHeads * kHeadDim * p.tokens(), kHeadDim * p.tokens(), 1, kHeadDim},
                       CUDNN_DATA_BFLOAT16)),  // transposed
        v(graph.tensor({1, kKvHeads, p.tokens(), kHeadDim},
                       {kKvHeads * kHeadDim * p.tokens(), kHeadDim * p.tokens(), kHeadDim, 1},
                       CUDNN_DATA_BFLOAT16)),
        sinks(graph.tensor({1, kHeads, 1, 1}, {kHeads, 1, 1, 1}, CUDNN_DATA_FLOAT)),
        out(heads_of_tokens(p.tokens())),
        gathered(*find_device({0}), 2 * kKvHeads * kHeadDim * p.tokens()) {
    if (graph.version() < kVersionWithSinks)
      throw Unavailable("needs_library", "cuDNN 9.13, the first with sinks in attention");
    const Tensor weights =
        softmax(masked(scaled(graph.matmul(q, k, {1, kHeads, p.tokens(), p.tokens()})), p));
    graph.matmul(weights, v, out);
    graph.build("attention with sinks");
  }

  View<bf16, 4> rows() const {
    return gathered.as({2, kKvHeads, gathered.size() / (2 * kKvHeads * kHeadDim), kHeadDim});
  }

 private:
  Tensor heads_of_tokens(int64_t tokens) {
    return graph.tensor({1, kHeads, tokens, kHeadDim},
                        {kHeads * kHeadDim * tokens, kHeadDim, kHeads * kHeadDim, 1}, CUDNN_DATA_BFLOAT16);
  }
  Tensor scaled(const Tensor& scores) {
    return graph.pointwise(CUDNN_POINTWISE_MUL, scores, graph.scalar(kScale));
  }
  // Causal; with a window a token reaches positions above its own minus the window.
  Tensor masked(const Tensor& scores, const PromptAttention& p) {
    const Tensor past   = graph.pointwise(CUDNN_POINTWISE_CMP_GE, graph.index(scores, 2),
                                          graph.index(scores, 3), CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN);
    const Tensor causal = graph.select(past, scores, graph.scalar(kMasked));
    if (p.window == 0) return causal;
    const Tensor row = graph.index(causal, 2), column = graph.index(causal, 3);
    const Tensor end =
        graph.pointwise(CUDNN_POINTWISE_ADD, column, graph.scalar(static_cast<int32_t>(p.window)),
                        CUDNN_DATA_INT32, CUDNN_DATA_INT32);
    const Tensor in_window =
        graph.pointwise(CUDNN_POINTWISE_CMP_GT, end, row, CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN);
    return graph.select(in_window, causal, graph.scalar(kMasked));
  }
  Tensor softmax(const Tensor& scores) {
    const Tensor most =
        graph.pointwise(CUDNN_POINTWISE_MAX, graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores), sinks);
    const auto exponential = [&](const Tensor& x) {
      return graph.pointwise(CUDNN_POINTWISE_EXP, graph.pointwise(CUDNN_POINTWISE_SUB, x, most));
    };
    const Tensor terms   = exponential(scores);
    const Tensor of_sink = exponential(sinks);
    const Tensor sum =
        graph.pointwise(CUDNN_POINTWISE_ADD, graph.reduce(CUDNN_REDUCE_TENSOR_ADD, terms), of_sink);
    graph.pointwise(CUDNN_POINTWISE_ADD, most, graph.pointwise(CUDNN_POINTWISE_LOG, sum));
    return graph.pointwise(CUDNN_POINTWISE_DIV, terms, sum, CUDNN_DATA_BFLOAT16);
  }
};

}  // namespace

std::function<void(const PromptAttention&, StreamRef)> cudnn_attention(const PromptAttention& p, StreamRef) {
  if (p.tokens() == 0) return [](const PromptAttention&, StreamRef) {};
  const auto plan = std::make_shared<AttentionPlan>(p);
  return [plan](const PromptAttention& now, StreamRef stream) {
    const View<bf16, 4> rows = plan->rows();
    gather(now, rows, stream);
    plan->graph.run(stream, {{plan->q, now.q.data()},
                             {plan->k, &rows(0, 0, 0, 0)},
                             {plan->v, &rows(1, 0, 0, 0)},
                             {plan->sinks, now.sinks.data()},
                             {plan->out, now.out.data()}});
  };
}
#else
std::function<void(const PromptAttention&, StreamRef)> cudnn_attention(const PromptAttention&, StreamRef) {
  throw Unavailable("needs_library", "cudnn.h when Fathom is built");
}
#endif

}  // namespace fathom::lab::flash_attention_gpu
