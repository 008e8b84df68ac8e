// dv = p' d_out, dq = scale ds k, dk = scale ds' q                               (gradients.h)
//
// bytes   those of the problem, and fp32 sums of dq, written and read
// flops   10 D for each query head and pair of a query and a key in its reach
// limit   the tensor cores
// idea    the library: cuDNN's fused backward pass. It recognises the operations of the formula, in the order
//         in which its own frontend declares them (CompositeSDPABackwardNode), and fuses them
#include <limits>
#include <memory>

#include "gradients.h"
#include "lab/problem.h"

#if __has_include(<cudnn.h>)
#include "experiments/cudnn_graph.h"
#endif

namespace fathom::lab::attention_backward_gpu {

#ifdef CUDNN_MAJOR
namespace {

using Tensor = CudnnGraph::Tensor;

constexpr int64_t kVersionThatClearsSums = 90600;  // of dq; before, the caller had to

struct BackwardPlan {
  CudnnGraph graph;
  int64_t tokens, heads, kv_heads, dim;
  Tensor q, k, v, out, d_out, lse, dq, dk, dv;
  Tensor delta, dq_sums;  // cuDNN's intermediates that lie in memory
  DeviceBuffer<float> delta_memory, dq_sums_memory;

  explicit BackwardPlan(const Gradients& p)
      : tokens(p.tokens()),
        heads(p.heads()),
        kv_heads(p.kv_heads()),
        dim(p.head_dim()),
        q(rows(heads)),
        k(columns(kv_heads)),
        v(columns(kv_heads)),
        out(rows(heads)),
        d_out(rows(heads)),
        lse(per_row()),
        dq(rows(heads)),
        dk(rows(kv_heads)),
        dv(rows(kv_heads)),
        delta(per_row()),
        dq_sums(graph.tensor({1, heads, tokens, dim}, {heads * tokens * dim, tokens * dim, dim, 1},
                             CUDNN_DATA_FLOAT)),
        delta_memory(*find_device({0}), heads * tokens),
        dq_sums_memory(*find_device({0}), heads * tokens * dim) {
    if (graph.version() < kVersionThatClearsSums)
      throw Unavailable("needs_library", "cuDNN 9.6, which clears its sums of dq");
    const CudnnGraph::Extents square = {1, heads, tokens, tokens};
    graph.pointwise_to(
        CUDNN_POINTWISE_MUL,
        graph.reduce(CUDNN_REDUCE_TENSOR_ADD, graph.pointwise(CUDNN_POINTWISE_MUL, d_out, out)),
        graph.scalar(1.0f), delta);

    const Tensor scale   = graph.scalar(p.scale);
    const Tensor scores  = graph.pointwise(CUDNN_POINTWISE_MUL, graph.matmul(q, k, square), scale);
    const Tensor shifted = graph.pointwise(CUDNN_POINTWISE_SUB, scores, lse);
    const Tensor weights = graph.pointwise(CUDNN_POINTWISE_EXP, p.causal ? masked(shifted) : shifted);
    sum_over_queries(transposed(weights), d_out, dv);

    const Tensor centred = graph.pointwise(CUDNN_POINTWISE_SUB, graph.matmul(d_out, v, square), delta);
    const Tensor d_scores =
        graph.pointwise(CUDNN_POINTWISE_MUL, graph.pointwise(CUDNN_POINTWISE_MUL, centred, weights), scale);
    sum_over_queries(transposed(d_scores), q, dk);

    const Tensor key_rows =
        graph.reshape(k, {1, kv_heads, tokens, dim}, row_strides(kv_heads), CUDNN_DATA_BFLOAT16);
    graph.matmul(d_scores, key_rows, dq_sums);
    graph.pointwise_to(CUDNN_POINTWISE_IDENTITY, dq_sums, std::nullopt, dq);
    graph.build("the backward pass of attention");
  }

 private:
  CudnnGraph::Extents row_strides(int64_t n) const { return {n * dim * tokens, dim, n * dim, 1}; }
  Tensor rows(int64_t n) { return graph.tensor({1, n, tokens, dim}, row_strides(n), CUDNN_DATA_BFLOAT16); }
  Tensor columns(int64_t n) {  // transposed
    return graph.tensor({1, n, dim, tokens}, {n * dim * tokens, dim, 1, n * dim}, CUDNN_DATA_BFLOAT16);
  }
  Tensor per_row() {
    return graph.tensor({1, heads, tokens, 1}, {heads * tokens, tokens, 1, 1}, CUDNN_DATA_FLOAT);
  }
  Tensor masked(const Tensor& scores) {
    const Tensor past = graph.pointwise(CUDNN_POINTWISE_CMP_GE, graph.index(scores, 2),
                                        graph.index(scores, 3), CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN);
    return graph.select(past, scores, graph.scalar(-std::numeric_limits<float>::infinity()));
  }
  Tensor transposed(const Tensor& square) {
    return graph.reshape(square, square.extents, {heads * tokens * tokens, tokens * tokens, 1, tokens},
                         CUDNN_DATA_BFLOAT16);
  }
  // y = weights rows; over the query heads of a group too.
  void sum_over_queries(const Tensor& weights, const Tensor& of_rows, const Tensor& y) {
    if (heads == kv_heads) return graph.matmul(weights, of_rows, y);
    const Tensor of_heads = graph.result({1, heads, tokens, dim}, CUDNN_DATA_BFLOAT16);
    graph.matmul(weights, of_rows, of_heads);
    graph.reduce_to(CUDNN_REDUCE_TENSOR_ADD, of_heads, y);
  }
};

}  // namespace

std::function<void(const Gradients&, StreamRef)> cudnn_backward(const Gradients& p, StreamRef) {
  if (p.tokens() == 0) return [](const Gradients&, StreamRef) {};
  const auto plan = std::make_shared<BackwardPlan>(p);
  return [plan](const Gradients& now, StreamRef stream) {
    plan->graph.run(stream, {{plan->q, now.q.data()},
                             {plan->k, now.k.data()},
                             {plan->v, now.v.data()},
                             {plan->out, now.out.data()},
                             {plan->d_out, now.d_out.data()},
                             {plan->lse, now.lse.data()},
                             {plan->dq, now.dq.data()},
                             {plan->dk, now.dk.data()},
                             {plan->dv, now.dv.data()},
                             {plan->delta, plan->delta_memory.data()},
                             {plan->dq_sums, plan->dq_sums_memory.data()}});
  };
}
#else
std::function<void(const Gradients&, StreamRef)> cudnn_backward(const Gradients&, StreamRef) {
  throw Unavailable("needs_library", "cudnn.h when Fathom is built");
}
#endif

}  // namespace fathom::lab::attention_backward_gpu
