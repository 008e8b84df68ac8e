// What is left of an update of rank 16 when it is merged into weights that are then rounded. `original`: the
// update is added to the weights as they were before any rounding. `grid`: to weights that lie on the grid.
// Prints, for the change E that the rounded weights show, and the update D:
//   arrives  <E, D> / <D, D>, 1 if the update comes through on average
//   noise    |E - D| / |D|, the root of the sum of squares
//   along    |(E - D) x| / |D x| for inputs x to which D answers
// and for int4 the noise by the chapter's law, for MXFP4 the share of groups on the grid that halve their
// scale.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "adapter.h"
#include "core/dtype.h"

namespace {

constexpr int64_t d = 1024, r = 16, kGroup = 32;

Matrix to_bf16(const Matrix& w, const Matrix&) {
  Matrix out(w.size());
  for (size_t i = 0; i < w.size(); ++i) out[i] = static_cast<float>(fathom::bf16(w[i]));
  return out;
}

// The scale of a group of 32: a power of two, by the rule of the OCP standard.
float mxfp4_scale(const Matrix& w, size_t group) {
  float largest = 0;
  for (size_t i = group; i < group + kGroup; ++i) largest = std::max(largest, std::abs(w[i]));
  return std::ldexp(1.0f, std::ilogb(largest) - 2);
}

// Codes of E2M1, with the scales that the weights had before the update.
Matrix to_mxfp4_kept(const Matrix& w, const Matrix& before) {
  Matrix out(w.size());
  for (size_t g = 0; g < w.size(); g += kGroup) {
    const float scale = mxfp4_scale(before, g);
    for (size_t i = g; i < g + kGroup; ++i)
      out[i] = scale * static_cast<float>(fathom::fp4_e2m1(w[i] / scale));
  }
  return out;
}

// The same with new scales.
Matrix to_mxfp4(const Matrix& w, const Matrix&) { return to_mxfp4_kept(w, w); }

float int4_step(const Matrix& w, size_t group) {
  float largest = 0;
  for (size_t i = group; i < group + kGroup; ++i) largest = std::max(largest, std::abs(w[i]));
  return largest / 7;
}

// Codes from -7 to 7, and for each group of 32 the scale that the weights had before the update.
Matrix to_int4(const Matrix& w, const Matrix& before) {
  Matrix out(w.size());
  for (size_t g = 0; g < w.size(); g += kGroup) {
    const float step = int4_step(before, g);
    for (size_t i = g; i < g + kGroup; ++i)
      out[i] = step * std::clamp(std::nearbyint(w[i] / step), -7.0f, 7.0f);
  }
  return out;
}

double dot(const Matrix& x, const Matrix& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * y[i];
  return sum;
}

// y = M x
Matrix apply(const Matrix& m, const Matrix& x) {
  Matrix y(d);
  for (int64_t i = 0; i < d; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < d; ++j) sum += static_cast<double>(m[i * d + j]) * x[j];
    y[i] = static_cast<float>(sum);
  }
  return y;
}

}  // namespace

int main() {
  Normal draw(16);
  const Matrix original = normal(d, d, 1 / std::sqrt(double{d}), draw);
  struct {
    const char* name;
    Matrix (*rounded)(const Matrix& w, const Matrix& before);
  } const formats[] = {
      {"bf16", to_bf16}, {"int4", to_int4}, {"mxfp4", to_mxfp4}, {"mxfp4_kept", to_mxfp4_kept}};

  for (const int part : {4, 16, 64, 256}) {
    Matrix a;
    const Matrix delta = update(d, r, rms(original) / part, draw, &a);
    Matrix x(d);  // a sum of A's rows
    for (int64_t k = 0; k < r; ++k) {
      const float share = draw();
      for (int64_t j = 0; j < d; ++j) x[j] += share * a[k * d + j];
    }
    const Matrix answer = apply(delta, x);

    double variance = 0;  // of what int4 makes of the update, by the law
    for (int64_t i = 0; i < d * d; ++i) {
      const double step = int4_step(original, i / kGroup * kGroup);
      double beyond     = std::abs(delta[i]) / step;
      beyond -= std::floor(beyond);
      variance += step * step * beyond * (1 - beyond);
    }
    std::printf("int4.original.part_%d.law %.3f\n", part, std::sqrt(variance / dot(delta, delta)));

    const Matrix base = to_mxfp4(original, original);
    Matrix moved      = base;
    for (int64_t i = 0; i < d * d; ++i) moved[i] += delta[i];
    int64_t halved = 0;
    for (int64_t g = 0; g < d * d; g += kGroup) halved += mxfp4_scale(moved, g) < mxfp4_scale(base, g);
    std::printf("mxfp4.grid.part_%d.halved %.4f\n", part, static_cast<double>(halved * kGroup) / (d * d));

    for (const auto& [format, rounded] : formats) {
      const Matrix before = rounded(original, original);
      for (const bool on_grid : {false, true}) {
        Matrix merged = on_grid ? before : original;
        for (int64_t i = 0; i < d * d; ++i) merged[i] += delta[i];
        Matrix shown = rounded(merged, original), wrong(d * d);
        for (int64_t i = 0; i < d * d; ++i) {
          shown[i] -= before[i];
          wrong[i] = shown[i] - delta[i];
        }
        const std::string name =
            std::string(format) + (on_grid ? ".grid." : ".original.") + "part_" + std::to_string(part) + ".";
        std::printf("%sarrives %.3f\n", name.c_str(), dot(shown, delta) / dot(delta, delta));
        std::printf("%snoise %.3f\n", name.c_str(), rms(wrong) / rms(delta));
        std::printf("%salong %.3f\n", name.c_str(), rms(apply(wrong, x)) / rms(answer));
      }
    }
  }
}
