// The rows of an expert layer, one for each token and expert of it, brought together by experts: so that each
// expert's weights are read once for all its tokens (kernels/packed_experts_many.h).
//
// Slot s = t top_k + k is the k-th expert of token t. Sorted row i is slot(i); those of expert e are
// first(e) .. first(e + 1), in the order of their slots.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"

namespace fathom::kernels {

inline constexpr int64_t kMaxExperts = 128;  // of a layer

// On the device.
struct ExpertRows {
  View<const int32_t, 1> first;  // [E + 1]; first(E) is how many rows there are
  View<const int32_t, 1> slot;   // [T top_k], of which the first first(E) count
};

// experts [T, top_k], contiguous; -1: the slot belongs to nobody and is left out. first [E + 1], E up to
// kMaxExperts; slot [T top_k]. By one block: some microseconds for up to a thousand slots.
void sort_by_expert(View<const int32_t, 2> experts, View<int32_t, 1> first, View<int32_t, 1> slot,
                    StreamRef stream);

// sorted(i) = x(slot(i) / top_k) for the rows that there are. x [T, H], sorted [T top_k, H], rows of
// multiples of 16 bytes, aligned so.
void gather_rows(View<const bf16, 2> x, const ExpertRows& rows, int64_t top_k, View<bf16, 2> sorted,
                 StreamRef stream);

}  // namespace fathom::kernels
