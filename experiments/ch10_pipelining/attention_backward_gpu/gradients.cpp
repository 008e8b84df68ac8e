// The problem of gradients.h: its inputs, its cost, and the check against the formula.
#include "gradients.h"

#include <cmath>

#include "kernels/attention/attention_backward.h"
#include "kernels/attention/flash_attention_backward.h"

namespace fathom::lab::attention_backward_gpu {
namespace {

// The logarithm of a sum of n terms exp(s), with s normal of variance 1, is log(n) + 1/2, but for chance. So
// rows of weights sum to about 1, as after a forward pass, which this experiment does not run.
Generate log_sum_exps(int64_t tokens, bool causal) {
  return generate<float>([tokens, causal](float* to, int64_t n, uint64_t) {
    for (int64_t i = 0; i < n; ++i)
      to[i] = std::log(static_cast<float>(causal ? i % tokens + 1 : tokens)) + 0.5f;
  });
}

// Compares a gradient, an element at a time; reference(token, head) is a GradientRow. p and ds are rounded to
// bf16 as operands of the tensor cores.
template <class Reference>
void check_rows(Checker& checker, const char* name, const View<bf16, 3>& gradient,
                const Reference& reference) {
  // `row` is of the last element, which the thread's copy keeps.
  checker.values_in_parallel(
      name, gradient,
      [&reference, row = kernels::GradientRow(), row_t = int64_t{-1}, row_h = int64_t{-1}](
          int64_t t, int64_t h, int64_t d) mutable {
        if (row_t != t || row_h != h) row = reference(t, h);
        row_t = t, row_h = h;
        const auto at = static_cast<size_t>(d);
        return Sum{.value = row.value[at], .magnitude = row.size[at], .accumulate = DType::bf16};
      });
}

}  // namespace

Gradients::Gradients(const Point& at, Arena& arena)
    : causal(at["causal"] != 0),
      scale(1 / std::sqrt(static_cast<float>(at["head_dim"]))),
      q(arena.input<bf16>({at["tokens"], at["heads"], at["head_dim"]}, Normal{})),
      k(arena.input<bf16>({at["tokens"], at["kv_heads"], at["head_dim"]}, Normal{})),
      v(arena.input<bf16>({at["tokens"], at["kv_heads"], at["head_dim"]}, Normal{})),
      out(arena.input<bf16>({at["tokens"], at["heads"], at["head_dim"]}, Normal{0, 0.1})),
      d_out(arena.input<bf16>({at["tokens"], at["heads"], at["head_dim"]}, Normal{})),
      lse(arena.input<float>({at["heads"], at["tokens"]}, log_sum_exps(at["tokens"], causal))),
      dq(arena.output<bf16>({at["tokens"], at["heads"], at["head_dim"]})),
      dk(arena.output<bf16>({at["tokens"], at["kv_heads"], at["head_dim"]})),
      dv(arena.output<bf16>({at["tokens"], at["kv_heads"], at["head_dim"]})),
      op_workspace(arena.workspace<float>({kernels::flash_attention_backward_workspace(
          at["tokens"], at["heads"], at["head_dim"], kernels::DqSums::atomic)})),
      scores(arena.workspace<float>({at["tokens"], (at["tokens"] + 7) / 8 * 8})),
      d_weights(arena.workspace<float>({scores.extent(0), scores.extent(1)})),
      weights(arena.workspace<bf16>({scores.extent(0), scores.extent(1)})),
      d_scores(arena.workspace<bf16>({scores.extent(0), scores.extent(1)})),
      dk_sums(arena.workspace<float>({at["tokens"], at["head_dim"]})),
      dv_sums(arena.workspace<float>({at["tokens"], at["head_dim"]})) {}

Cost Gradients::cost() const {
  const auto n       = static_cast<double>(tokens());
  const double pairs = causal ? n * (n + 1) / 2 : n * n;  // (query, key in its reach)
  return {.read      = q.bytes() + k.bytes() + v.bytes() + out.bytes() + d_out.bytes() + lse.bytes(),
          .written   = dq.bytes() + dk.bytes() + dv.bytes(),
          .flops     = 10.0 * static_cast<double>(heads() * head_dim()) * pairs,
          .flop_type = DType::bf16};
}

void Gradients::check(Checker& checker) const {
  const kernels::AttentionBackward<bf16> a{
      .q = q, .k = k, .v = v, .out = out, .d_out = d_out, .lse = lse, .scale = scale, .causal = causal};
  check_rows(checker, "dq", dq, [&a](int64_t t, int64_t h) { return kernels::dq_reference(a, t, h); });
  check_rows(checker, "dk", dk, [&a](int64_t t, int64_t h) { return kernels::dk_reference(a, t, h); });
  check_rows(checker, "dv", dv, [&a](int64_t t, int64_t h) { return kernels::dv_reference(a, t, h); });
}

}  // namespace fathom::lab::attention_backward_gpu
