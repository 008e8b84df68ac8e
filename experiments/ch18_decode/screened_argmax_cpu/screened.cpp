// ids(t) = argmax_v score((W x)(t, v)), without all of W
//
// bytes   1.06 V K of the int8 copy; of W the rows that may win
// flops   2 T V K, in integers
// limit   memory bandwidth
// idea    the engine's way, model/unembedding_screen.h: the copy bounds every score, and what cannot reach
// the
//         best lower bound is not computed
#include <algorithm>
#include <memory>
#include <vector>

#include "core/gumbel.h"
#include "model/ops.h"
#include "unembedding.h"

namespace fathom::lab::screened_argmax_cpu {

Launch<Unembedding> screened(const Unembedding& prepared, Context& context) {
  const auto screen = std::make_shared<model::UnembeddingScreen>(prepared.w, context.pool);
  return [screen](const Unembedding& p, Context& context) {
    if (p.rows == 0) return;
    auto* scratch = reinterpret_cast<std::byte*>(p.scratch.data());
    const Execution on{.threads = &context.pool, .scratch = View<std::byte, 1>(scratch, {p.scratch.bytes()})};
    model::cpu_ops().linear_int8(p.x, screen->copy(), {}, kernels::Output::overwrite, p.logits, on);
    std::vector<int64_t> ids;
    for (int64_t t = 0; t < p.rows; ++t) {
      const model::DrawRule rule = p.rule(t);
      const std::span<const float> x(&p.x(t, 0), static_cast<size_t>(p.inputs));
      if (!screen->candidates(x, {&p.logits(t, 0), static_cast<size_t>(p.vocabulary)}, rule, ids))
        throw std::runtime_error("a logit is not finite");
      const auto n = std::ssize(ids);
      std::vector<bf16> weights(static_cast<size_t>(n * p.inputs));
      std::vector<float> exact(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i)
        std::copy_n(&p.w(ids[static_cast<size_t>(i)], 0), p.inputs, weights.data() + i * p.inputs);
      model::cpu_ops().linear({x.data(), {1, p.inputs}}, View<const bf16, 2>(weights.data(), {n, p.inputs}),
                              {}, kernels::Output::overwrite, {exact.data(), {1, n}}, on);
      const auto score = [&](int64_t i) {
        const auto y = static_cast<double>(exact[static_cast<size_t>(i)]);
        return rule.temperature > 0
                   ? y / rule.temperature + gumbel(rule.seed, rule.position, ids[static_cast<size_t>(i)])
                   : y;
      };
      int64_t best = 0;
      for (int64_t i = 1; i < n; ++i)
        if (score(i) > score(best)) best = i;
      p.ids(t) = static_cast<int32_t>(ids[static_cast<size_t>(best)]);
    }
  };
}

}  // namespace fathom::lab::screened_argmax_cpu
