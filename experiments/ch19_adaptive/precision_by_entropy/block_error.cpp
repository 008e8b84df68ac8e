// FP8 for the tokens whose activations lose most in FP4, by a pass without rounding.
#include "core/buffer.h"
#include "row_formats.h"

namespace fathom::lab::precision_by_entropy {

void block_error(const RoundedForward& p, Context&) {
  std::vector<double> errors(static_cast<size_t>(p.tokens()));
  Buffer<float> logits(p.logits.size());
  rounded_forward::forward(
      p.rows,
      [&](int64_t, View<float, 2> x) {
        for (int64_t t = 0; t < x.extent(0); ++t) {
          const auto squares = rounded_forward::squares_of(Format::fp4, &x(t, 0), x.extent(1));
          if (squares.numbers > 0) errors[static_cast<size_t>(t)] += squares.errors / squares.numbers;
        }
      },
      logits.as({p.logits.extent(0), p.logits.extent(1)}));
  forward_in(p, upper_half_in_fp8(errors));
}

}  // namespace fathom::lab::precision_by_entropy
