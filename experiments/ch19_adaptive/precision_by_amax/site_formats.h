// A format for each input of a product, for all of its rows.
#pragma once

#include <vector>

#include "experiments/ch19_adaptive/rounded_forward.h"

namespace fathom::lab::precision_by_amax {

using rounded_forward::Format;
using rounded_forward::RoundedForward;

// Of each site, seen in a pass without rounding.
struct Seen {
  double amax      = 0;  // the largest magnitude
  double fp4_error = 0;  // rms over the rows of the relative error in FP4
};
std::vector<Seen> seen_at_sites(const RoundedForward& p);

// The rule: below 6, the largest E2M1 number, FP4; below 240, the largest of one kind of E4M3, FP8; else
// BF16.
Format format_by_amax(double amax);
std::vector<Format> formats_by_amax(const std::vector<Seen>& seen);
// As many sites in each format as in `formats`, but those of the lowest rank in the smallest format.
std::vector<Format> in_order_of(const std::vector<double>& rank, const std::vector<Format>& formats);

void forward_in(const RoundedForward& p, const std::vector<Format>& of_sites);

void all_bf16(const RoundedForward& p, Context& context);
void all_fp8(const RoundedForward& p, Context& context);
void all_fp4(const RoundedForward& p, Context& context);
void amax(const RoundedForward& p, Context& context);
void block_error(const RoundedForward& p, Context& context);
void chance(const RoundedForward& p, Context& context);

}  // namespace fathom::lab::precision_by_amax
