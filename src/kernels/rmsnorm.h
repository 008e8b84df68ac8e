// y(t, h) = x(t, h) weight(h) / sqrt(mean_h x(t, h)^2 + eps)
//
// The product with the weight is taken before anything is rounded (specs/gpt-oss.md section 2).
//
// bytes   8 H a token
// limit   memory bandwidth, from a cache: a row was just written
#pragma once

#include <cstdint>

#include "core/execution.h"
#include "core/view.h"

namespace fathom::kernels {

// x, y [T, H], the same or apart; weight [H].
void rmsnorm_reference(View<const float, 2> x, View<const float, 1> weight, double eps, View<float, 2> y,
                       const Execution& on);
void rmsnorm_cpu(View<const float, 2> x, View<const float, 1> weight, double eps, View<float, 2> y,
                 const Execution& on);

}  // namespace fathom::kernels
