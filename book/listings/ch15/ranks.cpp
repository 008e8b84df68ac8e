// The least rank with which a 256 x 256 update can be written with a relative error of at most 1/2, 1/4 and
// 1/10, from its singular values (Eckart and Young).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>

#include "adapter.h"

namespace {

constexpr int64_t d = 256;
using Columns       = std::vector<std::vector<double>>;

double dot(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (int64_t i = 0; i < d; ++i) sum += x[i] * y[i];
  return sum;
}

// Rotates pairs of columns until all are orthogonal (Hestenes 1958). Their lengths are then the singular
// values.
std::vector<double> singular_values(Columns columns) {
  for (bool turned = true; turned;) {
    turned = false;
    for (int64_t p = 0; p < d; ++p)
      for (int64_t q = p + 1; q < d; ++q) {
        const double pp = dot(columns[p], columns[p]), qq = dot(columns[q], columns[q]),
                     pq = dot(columns[p], columns[q]);
        if (std::abs(pq) <= 1e-10 * std::sqrt(pp * qq) || std::abs(pq) < 1e-20) continue;
        turned           = true;
        const double z   = (qq - pp) / (2 * pq);
        const double tan = std::copysign(1 / (std::abs(z) + std::sqrt(1 + z * z)), z);
        const double cos = 1 / std::sqrt(1 + tan * tan), sin = cos * tan;
        for (int64_t i = 0; i < d; ++i) {
          const double x = columns[p][i], y = columns[q][i];
          columns[p][i] = cos * x - sin * y;
          columns[q][i] = sin * x + cos * y;
        }
      }
  }
  std::vector<double> values;
  for (const auto& column : columns) values.push_back(std::sqrt(dot(column, column)));
  std::sort(values.rbegin(), values.rend());
  return values;
}

Columns random(int64_t count, Normal& draw) {
  Columns made(count, std::vector<double>(d));
  for (auto& column : made)
    for (double& x : column) x = draw();
  return made;
}

// Columns of length 1 at right angles.
Columns orthogonal(Normal& draw) {
  Columns made = random(d, draw);
  for (int64_t k = 0; k < d; ++k) {
    for (int twice = 0; twice < 2; ++twice)
      for (int64_t before = 0; before < k; ++before) {
        const double along = dot(made[k], made[before]);
        for (int64_t i = 0; i < d; ++i) made[k][i] -= along * made[before][i];
      }
    const double length = std::sqrt(dot(made[k], made[k]));
    for (double& x : made[k]) x /= length;
  }
  return made;
}

// sum over k of size(k) left_k right_k^T
Columns sum_of_products(const Columns& left, const Columns& right,
                        const std::function<double(int64_t)>& size) {
  Columns made(d, std::vector<double>(d));
  for (size_t k = 0; k < left.size(); ++k)
    for (int64_t j = 0; j < d; ++j)
      for (int64_t i = 0; i < d; ++i) made[j][i] += size(k) * left[k][i] * right[k][j];
  return made;
}

int64_t rank_for(const std::vector<double>& values, double error) {
  double all = 0, rest = 0;
  for (const double v : values) all += v * v;
  int64_t rank = d;
  while (rank > 0 && (rest += values[rank - 1] * values[rank - 1]) <= error * error * all) --rank;
  return rank;
}

}  // namespace

int main() {
  Normal draw(17);
  const Columns u = orthogonal(draw), v = orthogonal(draw);
  const Columns errors = random(16, draw), inputs = random(16, draw);
  const std::pair<std::string, Columns> updates[] = {
      {"random", random(d, draw)},
      {"one_over_k", sum_of_products(u, v, [](int64_t k) { return 1 / double(k + 1); })},
      {"four_fifths", sum_of_products(u, v, [](int64_t k) { return std::pow(0.8, double(k)); })},
      {"sixteen_tokens", sum_of_products(errors, inputs, [](int64_t) { return 1.0; })}};
  for (const auto& [name, matrix] : updates) {
    const std::vector<double> values = singular_values(matrix);
    for (const auto& [of, error] : {std::pair{"half", 0.5}, {"quarter", 0.25}, {"tenth", 0.1}})
      std::printf("%s.%s %lld\n", name.c_str(), of, static_cast<long long>(rank_for(values, error)));
  }
}
