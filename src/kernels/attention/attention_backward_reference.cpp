#include <cmath>
#include <utility>

#include "kernels/attention/attention_backward.h"
#include "kernels/attention/reference_dot.h"

namespace fathom::kernels {
namespace {

template <class T>
double weight(const AttentionBackward<T>& a, int64_t i, int64_t j, int64_t head, int64_t kv_head) {
  const double s = a.scale * dot(&a.q(i, head, 0), &a.k(j, kv_head, 0), a.q.extent(2)).value;
  return std::exp(s - a.lse(head, i));
}

template <class T>
Dot delta(const AttentionBackward<T>& a, int64_t i, int64_t head) {
  return dot(&a.d_out(i, head, 0), &a.out(i, head, 0), a.q.extent(2));
}

// ds of a query and a key, with the size of what rounding moves.
template <class T>
Dot weight_gradient(const AttentionBackward<T>& a, int64_t i, int64_t j, int64_t head, int64_t kv_head,
                    const Dot& delta) {
  const Dot dp           = dot(&a.d_out(i, head, 0), &a.v(j, kv_head, 0), a.q.extent(2));
  const double p         = weight(a, i, j, head, kv_head);
  const double ds        = p * (dp.value - delta.value);
  constexpr double kFp32 = 0x1p-12;  // sums are in fp32, p and ds are rounded to bf16, some 2^12 as coarse
  return {ds, std::fabs(ds) + kFp32 * p * (dp.size + delta.size)};
}

class RowSum {
 public:
  explicit RowSum(int64_t n) : row_{std::vector<double>(at(n)), std::vector<double>(at(n))} {}

  // A factor and its size, times a vector.
  template <class T>
  void add(const Dot& factor, const T* vector) {
    double* const values    = row_.value.data();
    double* const squares   = row_.size.data();
    const double of_squares = factor.size * factor.size;
    const size_t n          = row_.value.size();
    for (size_t d = 0; d < n; ++d) {
      const double x = static_cast<float>(vector[d]);
      values[d] += factor.value * x;
      squares[d] += of_squares * (x * x);
    }
  }
  GradientRow times(double scale) {
    for (double& x : row_.value) x *= scale;
    for (double& x : row_.size) x = scale * std::sqrt(x);
    return std::move(row_);
  }

 private:
  static size_t at(int64_t n) { return static_cast<size_t>(n); }

  GradientRow row_;
};

}  // namespace

template <class T>
GradientRow dq_reference(const AttentionBackward<T>& a, int64_t token, int64_t head) {
  const int64_t kv_head = head / (a.q.extent(1) / a.k.extent(1));
  const Dot of_row      = delta(a, token, head);
  RowSum dq(a.q.extent(2));
  for (int64_t j = 0; j < (a.causal ? token + 1 : a.k.extent(0)); ++j)
    dq.add(weight_gradient(a, token, j, head, kv_head, of_row), &a.k(j, kv_head, 0));
  return dq.times(a.scale);
}

template <class T>
GradientRow dk_reference(const AttentionBackward<T>& a, int64_t token, int64_t kv_head) {
  const int64_t group = a.q.extent(1) / a.k.extent(1);
  RowSum dk(a.q.extent(2));
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int64_t i = a.causal ? token : 0; i < a.q.extent(0); ++i)
      dk.add(weight_gradient(a, i, token, head, kv_head, delta(a, i, head)), &a.q(i, head, 0));
  return dk.times(a.scale);
}

template <class T>
GradientRow dv_reference(const AttentionBackward<T>& a, int64_t token, int64_t kv_head) {
  const int64_t group = a.q.extent(1) / a.k.extent(1);
  RowSum dv(a.q.extent(2));
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int64_t i = a.causal ? token : 0; i < a.q.extent(0); ++i) {
      const double p = weight(a, i, token, head, kv_head);
      dv.add({p, p}, &a.d_out(i, head, 0));
    }
  return dv.times(1);
}

template GradientRow dq_reference(const AttentionBackward<float>&, int64_t, int64_t);
template GradientRow dq_reference(const AttentionBackward<bf16>&, int64_t, int64_t);
template GradientRow dk_reference(const AttentionBackward<float>&, int64_t, int64_t);
template GradientRow dk_reference(const AttentionBackward<bf16>&, int64_t, int64_t);
template GradientRow dv_reference(const AttentionBackward<float>&, int64_t, int64_t);
template GradientRow dv_reference(const AttentionBackward<bf16>&, int64_t, int64_t);

}  // namespace fathom::kernels
