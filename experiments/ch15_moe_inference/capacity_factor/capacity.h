// Which experts a token goes to where an expert takes no more than its capacity.
//
//   capacity = ceil(factor x tokens x top_k / experts)
//
// Slots are filled as in GShard (Lepikhin et al., 2020): the first choices of all tokens, then the second
// choices; in each, tokens in order. A slot whose expert is full is dropped, as in the Switch Transformer
// (Fedus et al., 2021), or goes to the token's best expert that has room and that the token does not have.
#pragma once

#include <cstdint>

#include "core/view.h"

namespace fathom::lab::capacity_factor {

enum class Overflow : int32_t { none, drop, next_choice };

int64_t capacity_of(double factor, int64_t tokens, int64_t top_k, int64_t experts);

// logits [T, E], E at most 64; chosen [T, top_k]: -1 where dropped; gates [T, top_k]: softmax over the
// token's top_k logits, 0 where dropped. A slot that moved has exp(logit) of its new expert over the same
// sum, so a token's gates add up to less than 1 where a slot was dropped or moved. Ties go to the lower
// expert. `capacity` counts where overflow is not none.
void route(View<const float, 2> logits, Overflow overflow, int64_t capacity, View<int32_t, 2> chosen,
           View<float, 2> gates);

}  // namespace fathom::lab::capacity_factor
