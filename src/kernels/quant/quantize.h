// Quantises bf16 matrices to the formats of kernels/quant/formats.h, and back, on the GPU.
//
//   code(r, c) = round(x(r, c) / unit)
//   out(r, c)  = code(r, c) * unit              in fp32, rounded to bf16
//
// bytes   for each number, 2 of bf16 and 1 of a code (E2M1: 1/2), and scales: 4/128, 1/32 or 1/16.
//         tensor_scale() reads x once more
// limit   DRAM bandwidth. H200: 2^29 numbers to E4M3 are 1.6 GB, 0.38 ms at a copy's 4.2 TB/s
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/quant/formats.h"

namespace fathom::kernels {

// Templates of the formats; the sources instantiate them. x and out have no gaps between rows. Nothing is
// written for an empty x.
template <class Format>
void quantize(View<const bf16, 2> x, const Format& q, StreamRef stream);
template <class Format>
void dequantize(const Format& q, View<bf16, 2> out, StreamRef stream);

// Writes the scale that quantize() is given: amax / largest, where largest is 448, 57344, or 6 * 448 for
// NVFP4. NaN if x holds an infinity or a NaN.
template <class Format>
void tensor_scale(View<const bf16, 2> x, const Format& q, StreamRef stream);

// The same on the host, one number at a time: what the tests compare every bit with.
template <class Format>
void quantize_reference(View<const bf16, 2> x, const Format& q);
template <class Format>
void dequantize_reference(const Format& q, View<bf16, 2> out);
template <class Format>
void tensor_scale_reference(View<const bf16, 2> x, const Format& q);

}  // namespace fathom::kernels
