// The product of kernels/gemm/linear.h with x in int8 too. The weights must be in int8.
//
// bytes   1.06 N K of weights, once, whatever T
// ops     2 T N K, integers of 8 bits; 1/32 as many in fp32
// limit   memory bandwidth up to a handful of rows, the units that multiply bytes beyond
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "kernels/execution.h"
#include "kernels/gemm/dense_matrix.h"

namespace fathom::kernels {

// The contract of linear.h. Each group of 32 numbers of a row of x has a scale, amax / 127 in fp32, and
// values round(number / scale), to nearest even, at most 127 in magnitude: the products of a group and their
// sum are exact in integers. A group of x with an infinity or a NaN has a NaN scale, one with scale 0 (amax
// below 2^-143) is zero. The product of two scales must be less than 2^128.
void linear_int8_reference(View<const float, 2> x, const Int8Weights& w, View<const bf16, 1> bias,
                           Output output, View<float, 2> y, const Execution& on);
void linear_int8_cpu(View<const float, 2> x, const Int8Weights& w, View<const bf16, 1> bias, Output output,
                     View<float, 2> y, const Execution& on);
// For at most `rows` rows of `depth` columns on `threads` threads.
int64_t linear_int8_cpu_scratch_bytes(int64_t rows, int64_t depth, int threads);

}  // namespace fathom::kernels
