// The rows of an expert layer, sorted by expert.
//
// An expert row is a token and one of its experts: r = t top_k + k. Sorted row i is expert row sorted_ids(i)
// (vLLM: sorted_token_ids). The rows of expert e are offsets(e) .. offsets(e + 1), in ascending order of r.
#pragma once

#include <cstdint>

#include "core/view.h"

namespace fathom::kernels {

inline constexpr int64_t kMaxExperts = 128;  // of a layer

// On the device.
struct ExpertRows {
  View<const int32_t, 1> offsets;     // [E + 1]; offsets(E) is the number of sorted rows
  View<const int32_t, 1> sorted_ids;  // [T top_k], of which the first offsets(E) are valid
};

}  // namespace fathom::kernels
