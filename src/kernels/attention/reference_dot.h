// A sum of products in double, and of their magnitudes: what the references of attention spend their time on.
#pragma once

#include <cmath>
#include <cstdint>

namespace fathom::kernels {

struct Dot {
  double value = 0, size = 0;

  Dot operator+(const Dot& other) const { return {value + other.value, size + other.size}; }
};

// In eight sums, because an addition would wait for the one before.
template <class T>
Dot dot(const T* a, const T* b, int64_t n) {
  constexpr int64_t kSums = 8;
  double values[kSums] = {}, sizes[kSums] = {};
  const auto add = [&](int64_t i, int64_t to) {
    const double product = static_cast<double>(static_cast<float>(a[i])) * static_cast<float>(b[i]);
    values[to] += product;
    sizes[to] += std::fabs(product);
  };
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t s = 0; s < kSums; ++s) add(i + s, s);
  for (; i < n; ++i) add(i, 0);
  Dot all;
  for (int64_t s = 0; s < kSums; ++s) all = all + Dot{values[s], sizes[s]};
  return all;
}

}  // namespace fathom::kernels
