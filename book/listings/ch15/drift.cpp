// Merges adapters into bf16 weights and takes them out again, n times. Prints the root mean square of what is
// then wrong, as a share of the update's, and how many weights are not what they were.
#include <cmath>
#include <cstdio>
#include <string>

#include "adapter.h"
#include "core/dtype.h"

namespace {

float rounded(float x) { return static_cast<float>(fathom::bf16(x)); }

constexpr int d = 256, r = 16;

void merge_and_unmerge(Matrix& w, const Matrix& delta) {
  for (int i = 0; i < d * d; ++i) w[i] = rounded(w[i] + delta[i]);
  for (int i = 0; i < d * d; ++i) w[i] = rounded(w[i] - delta[i]);
}

}  // namespace

int main() {
  Normal draw(15);
  Matrix original = normal(d, d, 1 / std::sqrt(double(d)), draw);
  for (float& x : original) x = rounded(x);
  const double size = rms(original) / 16;

  for (const std::string way : {"same", "in_turn", "new"}) {
    const int adapters = way == "same" ? 1 : 8;
    std::vector<Matrix> kept;
    for (int i = 0; i < adapters; ++i) kept.push_back(update(d, r, size, draw));

    Matrix w = original;
    for (int n = 1; n <= 1000; ++n) {
      merge_and_unmerge(w, way == "new" ? update(d, r, size, draw) : kept[n % adapters]);
      if (n != 1 && n != 10 && n != 100 && n != 1000) continue;
      Matrix wrong(d * d);
      int64_t changed = 0;
      for (int i = 0; i < d * d; ++i) changed += (wrong[i] = w[i] - original[i]) != 0;
      std::printf("%s.error_%d %.5f\n", way.c_str(), n, rms(wrong) / size);
      std::printf("%s.changed_%d %.4f\n", way.c_str(), n, static_cast<double>(changed) / (d * d));
    }
  }
}
