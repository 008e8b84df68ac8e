// The problem: fake quantisation. Each of four bf16 matrices of R x C becomes what a format of
// kernels/quant/formats.h leaves of it, in bf16 again:
//   out(t, r, c) = code(t, r, c) * unit       code(t, r, c) = round(x(t, r, c) / unit)
// A matrix has numbers of one distribution (kDistributions), and where its format has a scale of the tensor,
// one of its own: amax / the largest number.
#pragma once

#include "experiments/ch13_training/number_formats.h"
#include "lab/problem.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::format_errors {

inline constexpr int64_t kOutlierStride        = 64;  // columns
inline constexpr float kOutlierFactor          = 30;
inline constexpr int64_t kDistributionCount    = 4;
inline constexpr const char* kDistributions[4] = {
    "normal",     // of mean 0 and deviation 1, as weights are
    "uniform",    // in [-1, 1)
    "outliers",   // normal, but 30 times as large in each 64th column, as activations of a language model are
    "gradients",  // +-2^(2 N), N normal: most of them far below the largest
};

struct FakeQuantize {
  NumberFormat format;
  View<const bf16, 3> x;  // a matrix for each of kDistributions
  View<bf16, 3> out;

  FakeQuantize(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
  void metrics(CallMetrics& metrics) const;

  View<const bf16, 2> matrix(int64_t t) const { return {&x(t, 0, 0), {x.extent(1), x.extent(2)}}; }
  View<bf16, 2> rounded(int64_t t) const { return {&out(t, 0, 0), {x.extent(1), x.extent(2)}}; }
};

void codec(const FakeQuantize& p, Context& context);
void rounded_in_fp32(const FakeQuantize& p, Context& context);

}  // namespace fathom::lab::format_errors
