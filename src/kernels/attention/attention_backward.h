// The backward pass of attention, as its formula. With i a query's token and j a key's (j <= i where causal),
//
//   s(i, j)  = scale q(i) . k(j)
//   p(i, j)  = exp(s(i, j) - lse(i))             lse(i) = log sum_j exp(s(i, j)), from the forward pass
//   dp(i, j) = d_out(i) . v(j)
//   ds(i, j) = p(i, j) (dp(i, j) - delta(i))     delta(i) = d_out(i) . out(i)
//
//   dv(j) = sum_i p(i, j) d_out(i)
//   dq(i) = scale sum_j ds(i, j) k(j)
//   dk(j) = scale sum_i ds(i, j) q(i)
//
// Query head h reads key-value head h / (Hq / Hkv); dk and dv sum over the query heads of their group. This
// is the reference, in double: a row of a gradient at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/view.h"

namespace fathom::kernels {

template <class T>  // float, bf16
struct AttentionBackward {
  View<const T, 3> q, k, v, out, d_out;  // [T, Hq, D] and, of k and v, [T, Hkv, D]
  View<const float, 2> lse;              // [Hq, T]
  double scale;
  bool causal;
};

// A row of a gradient, and for each of its numbers the root of the sum of its terms' squares: what rounding
// the terms' factors p and ds moves is a small part of it. A term's size counts the sums that cancel in ds.
struct GradientRow {
  std::vector<double> value, size;  // [D]
};

template <class T>
GradientRow dq_reference(const AttentionBackward<T>& a, int64_t token, int64_t head);
template <class T>
GradientRow dk_reference(const AttentionBackward<T>& a, int64_t token, int64_t kv_head);
template <class T>
GradientRow dv_reference(const AttentionBackward<T>& a, int64_t token, int64_t kv_head);

}  // namespace fathom::kernels
