// For tests and experiments: activations with the correlations that weight quantizers are made for.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "core/view.h"

namespace fathom::model {

struct Samples {
  int64_t rows, columns;
  std::vector<float> numbers;

  Samples(int64_t of_rows, int64_t of_columns)
      : rows(of_rows), columns(of_columns), numbers(static_cast<size_t>(of_rows * of_columns)) {}
  float& operator()(int64_t r, int64_t c) { return numbers[static_cast<size_t>(r * columns + c)]; }
  View<const float, 2> view() const { return {numbers.data(), {rows, columns}}; }
};

inline Samples normal_samples(int64_t rows, int64_t columns, std::mt19937_64& random) {
  Samples samples(rows, columns);
  std::normal_distribution<float> normal;
  for (float& x : samples.numbers) x = normal(random);
  return samples;
}

// Tokens that are mixtures of a few directions, and a little noise: x = z B + noise e.
inline Samples correlated_samples(int64_t tokens, int64_t inputs, int64_t directions, float noise,
                                  std::mt19937_64& random) {
  Samples mixed           = normal_samples(tokens, inputs, random);
  const Samples of_tokens = normal_samples(tokens, directions, random),
                of_inputs = normal_samples(directions, inputs, random);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 0; k < inputs; ++k) {
      float sum = noise * mixed(t, k);
      for (int64_t d = 0; d < directions; ++d) sum += of_tokens.view()(t, d) * of_inputs.view()(d, k);
      mixed(t, k) = sum;
    }
  return mixed;
}

}  // namespace fathom::model
