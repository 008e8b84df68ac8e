// out = in filtered by a kernel of taps x taps weights     n x n, fp32
//
// bytes   8 n^2
// flops   2 taps^2 n^2
// limit   FMA peak; the loads of the pixels, most of them across two lines or unaligned, come first
// idea    the definition: every pixel of the neighbourhood times its weight, as for a kernel without
// structure
#include <array>

#include "filter.h"
#include "weighted_sum.h"

namespace fathom::lab::separable_filter_cpu {

void direct(const Filter& p, Context&) {
  std::array<Tap, kMostTaps * kMostTaps> taps;
  size_t count = 0;
  for (int64_t a = 0; a < p.taps(); ++a)
    for (int64_t b = 0; b < p.taps(); ++b)
      taps[count++] = {.offset = a * p.in.extent(1) + b, .weight = p.column(a) * p.row(b)};

  for (int64_t i = 0; i < p.out.extent(0); ++i)
    weighted_sum(&p.in(i, 0), {taps.data(), count}, &p.out(i, 0), p.out.extent(1));
}

}  // namespace fathom::lab::separable_filter_cpu
