// y(t, h) = x(t, h) weight(h) / sqrt(mean_h x(t, h)^2 + eps)
//
// The product with the weight is computed before anything is rounded.
//
// bytes   8 H a token
// limit   cache bandwidth: the row has just been written
#pragma once

#include <cstdint>

#include "core/view.h"
#include "kernels/execution.h"

namespace fathom::kernels {

// x, y [T, H], the same memory or disjoint; weight [H].
void rmsnorm_reference(View<const float, 2> x, View<const float, 1> weight, double eps, View<float, 2> y,
                       const Execution& on);
void rmsnorm_cpu(View<const float, 2> x, View<const float, 1> weight, double eps, View<float, 2> y,
                 const Execution& on);

}  // namespace fathom::kernels
