// The problem: one decode step of S sequences with the same context, in which a functor changes or masks the
// scores (kernels/attention/attention_scores.h).
#pragma once

#include <functional>

#include "experiments/ch18_decode/ragged_decode.h"

namespace fathom::lab::flexdecoding {

inline constexpr int kWindow = 128, kReach = 99;
inline constexpr float kCap = 2;  // scores are normal numbers

enum class Score { plain, window, alibi, relative_bias, soft_cap };

struct FlexDecode : ragged_decode::RaggedDecode {
  Score score;
  View<const float, 1> slopes;  // Hq
  View<const float, 2> bias;    // Hq x (2 kReach + 1), of kernels::RelativeBias
  // Of scores_in_memory. Rows of scores are padded to 16 bytes.
  View<bf16, 4> key_rows, value_rows;  // S x Hkv x context x D
  View<float, 2> scores;               // S Hq x context
  View<bf16, 2> weights;

  FlexDecode(const Point& at, Arena& arena);
  Cost cost() const;
  int window() const { return score == Score::window ? kWindow : INT32_MAX; }
  kernels::PagedDecode flex_op() const {
    kernels::PagedDecode op = RaggedDecode::op(0);
    op.window               = window();
    return op;
  }
  void check(Checker& checker) const;

  // Calls `with` with the point's functor.
  template <class With>
  void with_functor(const With& with) const {
    switch (score) {
      case Score::plain:
      case Score::window:
        return with(kernels::PlainScore{});
      case Score::alibi:
        return with(kernels::Alibi{slopes.data()});
      case Score::relative_bias:
        return with(kernels::RelativeBias{bias.data(), kReach});
      case Score::soft_cap:
        return with(kernels::SoftCap{kCap});
    }
  }
};

FATHOM_CUDA_LAUNCHER std::function<void(const FlexDecode&, StreamRef)> scores_in_memory(const FlexDecode&,
                                                                                        StreamRef);
FATHOM_CUDA_LAUNCHER void functor_in_kernel(const FlexDecode& p, StreamRef stream);

}  // namespace fathom::lab::flexdecoding
