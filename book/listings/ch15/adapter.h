// What the programs of chapter 15 share: numbers nearly normal, the same on every machine, and an adapter.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

using Matrix = std::vector<float>;  // row by row

// Nearly normal, mean 0 and variance 1: twelve numbers of SplitMix64, spread evenly over [0, 1), less 6.
class Normal {
 public:
  explicit Normal(uint64_t seed) : state_(seed) {}
  float operator()() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(next() >> 11) * 0x1p-53;
    return static_cast<float>(sum);
  }

 private:
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z          = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z          = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint64_t state_;
};

inline Matrix normal(int64_t rows, int64_t columns, double deviation, Normal& draw) {
  Matrix made(rows * columns);
  for (float& x : made) x = static_cast<float>(deviation * draw());
  return made;
}

// B A of d x r and r x d
inline Matrix product(const Matrix& b, const Matrix& a, int64_t d, int64_t r) {
  Matrix out(d * d);
  for (int64_t i = 0; i < d; ++i)
    for (int64_t k = 0; k < r; ++k)
      for (int64_t j = 0; j < d; ++j) out[i * d + j] += b[i * r + k] * a[k * d + j];
  return out;
}

// Root of the mean of squares.
inline double rms(const Matrix& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// An update of rank r whose numbers have this root mean square. `a`, if asked for, gets A.
inline Matrix update(int64_t d, int64_t r, double size, Normal& draw, Matrix* a = nullptr) {
  const Matrix left = normal(d, r, 1, draw), right = normal(r, d, 1, draw);
  Matrix made        = product(left, right, d, r);
  const double scale = size / rms(made);
  for (float& x : made) x = static_cast<float>(x * scale);
  if (a) *a = right;
  return made;
}
