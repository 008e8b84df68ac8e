// Where the numbers of a forward pass go wrong: what each op leaves behind, beside the same op of a reference
// pass. For a checkpoint that answers with noise (a value became infinite: where first?) and for a format
// of few bits (where does its error grow?). Runs on CPUs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/thread_pool.h"
#include "model/checkpoint.h"
#include "model/ops.h"

namespace fathom::model {

struct OpNumerics {
  int64_t layer = -1;          // -1 before the first layer, num_hidden_layers after the last
  std::string_view op;         // "embedding", "q", "attention", "residual after experts", ...
  bool residual      = false;  // the residual stream, which goes from layer to layer
  int64_t values     = 0;
  int64_t not_finite = 0;       // NaN or infinite
  double largest = 0, rms = 0;  // of the finite values; largest is a magnitude
  double reference_error = 0;   // rms of (value - reference) over the reference's rms; 0 without one
};

// One pass over `tokens` by `ops`, as entries in the order in which ops run; the last is the logits after the
// last token. With `reference`, a pass by those ops goes before it, from which errors are taken. All tokens
// must be in the vocabulary; there must be 1 to kMostNumericsTokens.
constexpr int64_t kMostNumericsTokens = 64;
std::vector<OpNumerics> trace_numerics(const Checkpoint& checkpoint, std::span<const TokenId> tokens,
                                       const Ops& ops, const Ops* reference, ThreadPool& threads);

}  // namespace fathom::model
