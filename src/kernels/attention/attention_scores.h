// Functors for the scores of attention, compiled into the kernels that take one (PyTorch's FlexAttention; its
// name is score_mod): what becomes of scale q . k for query head `head` and a key `distance` positions before
// the query? Behind the query the distance is negative. Prefill (flash_attention.h) and decode
// (paged_decode_attention.h) take the same functors.
#pragma once

#include "core/view.h"

namespace fathom::kernels {

struct PlainScore {
  FATHOM_HD float operator()(float score, int, int) const { return score; }
};
struct Alibi {
  const float* slopes;  // [Hq]

  FATHOM_HD float operator()(float score, int head, int distance) const {
    return score - slopes[head] * static_cast<float>(distance);
  }
};
struct RelativeBias {  // farther keys have the bias of the farthest
  const float* bias;   // [Hq, 2 reach + 1]: the key `reach` positions before the query first
  int reach;           // >= 0

  FATHOM_HD float operator()(float score, int head, int distance) const {
    const int before = distance < reach ? distance : reach, nearest = before > -reach ? before : -reach;
    return score + bias[head * (2 * reach + 1) + reach - nearest];
  }
};
struct SoftCap {  // cap tanh(score / cap)
  float cap;      // > 0

#if defined(__CUDACC__)
  __device__ float operator()(float score, int, int) const {
    const float e = __expf(2 / cap * score);  // infinity far above the cap: 1 - 0
    return cap - __fdividef(2 * cap, e + 1);
  }
#endif
};

}  // namespace fathom::kernels
