// The sections of one channel: coefficients and state, all in registers.
#pragma once

#include "filter_bank.h"

namespace fathom::lab::launch_bounds {

struct Sections {
  float b0[kSections], b1[kSections], b2[kSections], a1[kSections], a2[kSections];
  float s1[kSections] = {}, s2[kSections] = {};

  // Of the channel at `coefficient`, n channels side by side.
  __device__ Sections(const float* coefficient, int n) {
#pragma unroll
    for (int s = 0; s < kSections; ++s) {
      b0[s] = coefficient[(5 * s + 0) * n];
      b1[s] = coefficient[(5 * s + 1) * n];
      b2[s] = coefficient[(5 * s + 2) * n];
      a1[s] = coefficient[(5 * s + 3) * n];
      a2[s] = coefficient[(5 * s + 4) * n];
    }
  }

  // The next sample. Transposed direct form II: two numbers of state, the shortest way from input to output.
  __device__ float step(float v) {
#pragma unroll
    for (int s = 0; s < kSections; ++s) {
      const float w = fmaf(b0[s], v, s1[s]);
      s1[s]         = fmaf(b1[s], v, fmaf(a1[s], w, s2[s]));
      s2[s]         = fmaf(b2[s], v, a2[s] * w);
      v             = w;
    }
    return v;
  }
};

}  // namespace fathom::lab::launch_bounds
