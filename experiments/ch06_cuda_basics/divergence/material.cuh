// The response of one sample: a function for each material, and a switch between them.
#pragma once

#include "responses.h"

namespace fathom::lab::divergence {

// The mean of a polynomial over 0 < t < load. `coefficient_of(k)` gives that of t^k.
template <class Coefficient>
__device__ inline float mean_response(float load, Coefficient coefficient_of) {
  float sum = 0, node = 0.5f / kNodes;  // exact, and so are all the nodes
#pragma unroll 4
  for (int r = 0; r < kNodes; ++r, node += 1.0f / kNodes) {
    const float t = load * node;
    float value   = coefficient_of(kDegree);
#pragma unroll
    for (int k = kDegree - 1; k >= 0; --k) value = fmaf(value, t, coefficient_of(k));
    sum += value;
  }
  return sum * (1.0f / kNodes);
}

// The material's coefficients are constants in the instructions.
template <int kKind>
__device__ inline float response_of(float load) {
  return mean_response(load, [](int k) { return coefficient(kKind, k); });
}

__device__ inline float response(int kind, float load) {
  switch (kind) {
    case 0:
      return response_of<0>(load);
    case 1:
      return response_of<1>(load);
    case 2:
      return response_of<2>(load);
    default:
      return response_of<3>(load);
  }
}

}  // namespace fathom::lab::divergence
