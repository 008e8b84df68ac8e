// Counts the multiplications of an adapter in both orders: d = 4096, r = 16, one input.
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

int64_t multiplications = 0;

struct Counted {
  float value = 0;
  friend Counted operator*(Counted x, Counted y) {
    ++multiplications;
    return {x.value * y.value};
  }
  Counted& operator+=(Counted x) {
    value += x.value;
    return *this;
  }
};
using Numbers = std::vector<Counted>;

// m x k by k x n
Numbers product(const Numbers& left, const Numbers& right, int64_t m, int64_t k, int64_t n) {
  Numbers out(m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j) out[i * n + j] += left[i * k + p] * right[p * n + j];
  return out;
}

// Prints what was counted since the last report.
void report(const char* name) {
  std::printf("%s %lld\n", name, static_cast<long long>(multiplications));
  multiplications = 0;
}

}  // namespace

int main() {
  constexpr int64_t d = 4096, r = 16;
  const Numbers b(d * r, {0.5f}), a(r * d, {0.25f}), x(d, {2.0f});

  const Numbers ba    = product(b, a, d, r, d);
  const Numbers first = product(ba, x, d, d, 1);
  report("product_first");

  const Numbers ax     = product(a, x, r, d, 1);
  const Numbers second = product(b, ax, d, r, 1);
  report("vector_first");

  for (int64_t i = 0; i < d; ++i)  // all are powers of two and sums below 2^24: exact in both orders
    if (first[i].value != second[i].value) return 1;
}
