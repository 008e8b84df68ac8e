// A format for each token, in all its layers: FP8 for half of the tokens, FP4 for the others. All rules spend
// the same bits; they differ in which half.
#pragma once

#include <vector>

#include "experiments/ch19_adaptive/rounded_forward.h"

namespace fathom::lab::precision_by_entropy {

using rounded_forward::Format;
using rounded_forward::RoundedForward;

// FP8 for the upper half, by rank; of equal ranks for the later rows.
std::vector<Format> upper_half_in_fp8(const std::vector<double>& rank);
void forward_in(const RoundedForward& p, const std::vector<Format>& of_rows);

void all_bf16(const RoundedForward& p, Context& context);
void all_fp8(const RoundedForward& p, Context& context);
void all_fp4(const RoundedForward& p, Context& context);
void entropy(const RoundedForward& p, Context& context);
void own_entropy(const RoundedForward& p, Context& context);
void block_error(const RoundedForward& p, Context& context);
void chance(const RoundedForward& p, Context& context);

}  // namespace fathom::lab::precision_by_entropy
