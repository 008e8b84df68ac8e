// ids(t) = argmax_v score(y(t, v)) of y = W x: y itself, or y / temperature + a Gumbel number (core/gumbel.h)
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "lab/problem.h"
#include "model/unembedding_screen.h"

namespace fathom::lab::screened_argmax_cpu {

struct Unembedding {
  int64_t rows, vocabulary, inputs;
  double temperature;
  View<const float, 2> x;  // [T, K]
  View<const bf16, 2> w;   // [V, K], the same at every call
  View<int32_t, 1> ids;
  View<float, 2> logits;     // working memory
  View<uint8_t, 1> scratch;  // of the ops

  Unembedding(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  Execution execution(Context& context) const {
    auto* bytes = reinterpret_cast<std::byte*>(scratch.data());
    return {.threads = &context.pool, .scratch = View<std::byte, 1>(bytes, {scratch.bytes()})};
  }
  void choose() const;  // the ids, from the logits

  model::DrawRule rule(int64_t t) const {
    return {.temperature = temperature, .seed = 77 + static_cast<uint64_t>(t), .position = 100 + t};
  }
};

void all_logits(const Unembedding& p, Context& context);
// Makes the copy, as an engine does when it starts; the returned call is timed.
Launch<Unembedding> screened(const Unembedding& p, Context& context);

}  // namespace fathom::lab::screened_argmax_cpu
