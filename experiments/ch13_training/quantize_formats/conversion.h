// The problem: a bf16 matrix of R x C becomes codes and scales in a format of kernels/quant/formats.h. Scales
// of a tensor are given; all others are found. All numbers are finite.
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "experiments/ch13_training/number_formats.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::quantize_formats {

struct Conversion {
  NumberFormat format;
  View<const bf16, 2> x;
  View<const float, 1> tensor_scale;  // one
  View<uint8_t, 2> codes;
  View<uint8_t, 2> scales;  // bytes of a row's scales

  Conversion(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  // The matrix in a format; Format must be that of `format`.
  template <class Format>
  Format in() const {
    return kernels::views<Format>(x.extent(0), x.extent(1),
                                  reinterpret_cast<kernels::CodeOf<Format>*>(codes.data()),
                                  reinterpret_cast<kernels::ScaleOf<Format>*>(scales.data()),
                                  const_cast<float*>(tensor_scale.data()));  // quantize() only reads it
  }
};

FATHOM_CUDA_LAUNCHER void number_a_thread(const Conversion& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void vectors_of_8(const Conversion& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void own_rounding(const Conversion& p, StreamRef stream);

}  // namespace fathom::lab::quantize_formats
