#include "model/gptq.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "core/expect.h"

namespace fathom::model {
namespace {

// A square matrix by rows.
struct Square {
  int64_t n;
  std::vector<double> numbers;

  explicit Square(int64_t extent) : n(extent), numbers(static_cast<size_t>(extent * extent)) {}
  double* row(int64_t i) { return numbers.data() + i * n; }
  const double* row(int64_t i) const { return numbers.data() + i * n; }
  double& operator()(int64_t i, int64_t j) { return row(i)[j]; }
};

// Replaces the upper triangle of a symmetric matrix H by R, H = R R'. Nothing where H is not positive
// definite. R is the Cholesky factor from the last input to the first, so that the inverse of R is the U of
// H^-1 = U' U, and H^-1 itself is never needed.
bool factorise(Square& h) {
  for (int64_t j = h.n - 1; j >= 0; --j) {
    const double* of_j = h.row(j) + j + 1;
    const double pivot = h(j, j) - dot(of_j, of_j, h.n - j - 1);
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    h(j, j) = std::sqrt(pivot);
    for (int64_t i = 0; i < j; ++i) h(i, j) = (h(i, j) - dot(h.row(i) + j + 1, of_j, h.n - j - 1)) / h(j, j);
  }
  return true;
}

Square inverse_of_upper(const Square& r) {
  Square u(r.n);
  for (int64_t i = r.n - 1; i >= 0; --i) {
    double* of_i = u.row(i);
    for (int64_t k = i + 1; k < r.n; ++k) {
      const double factor = r.row(i)[k];
      const double* of_k  = u.row(k);
      for (int64_t j = k; j < r.n; ++j) of_i[j] -= factor * of_k[j];
    }
    of_i[i] = 1;
    for (int64_t j = i; j < r.n; ++j) of_i[j] /= r.row(i)[i];
  }
  return u;
}

// The inputs in the order in which they are quantized, and U of H in that order.
struct InputOrder {
  std::vector<int64_t> order;
  std::vector<bool> dead;  // in that order
  Square u;
};

std::optional<InputOrder> order_of(const Calibration& calibration, const GptqOptions& options) {
  const int64_t K = calibration.inputs();
  std::vector<int64_t> order(static_cast<size_t>(K));
  std::iota(order.begin(), order.end(), 0);
  const auto moment = [&](int64_t k) { return calibration.second_moment(k, k); };
  if (options.act_order)
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return moment(a) > moment(b); });

  Square h(K);
  std::vector<bool> dead(order.size());
  double trace = 0;
  for (int64_t i = 0; i < K; ++i) {
    for (int64_t j = 0; j < K; ++j)
      h(i, j) = calibration.second_moment(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
    if (h(i, i) == 0) dead[static_cast<size_t>(i)] = true, h(i, i) = 1;
    trace += h(i, i);
  }
  for (int64_t i = 0; i < K; ++i) h(i, i) += options.damping * trace / static_cast<double>(K);
  if (!factorise(h)) return std::nullopt;
  return InputOrder{std::move(order), std::move(dead), inverse_of_upper(h)};
}

// Quantizes one block of inputs after the other, for some outputs at a time.
class OutputRows {
 public:
  OutputRows(View<const float, 2> w, const InputOrder& plan, const GptqOptions& options, QuantizedMatrix& to)
      : plan_(plan), options_(options), to_(to), w_(w) {}

  // Returns the sum of e^2 over outputs first .. first + n.
  double quantize(int64_t first, int64_t n) {
    const int64_t K = to_.columns;
    current_.resize(static_cast<size_t>(n * K));
    errors_.resize(static_cast<size_t>(n * options_.block));
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < K; ++i) {
        const auto at = static_cast<size_t>(i);
        row(r)[i]     = plan_.dead[at] ? 0 : static_cast<double>(w_(first + r, plan_.order[at]));
      }
      if (options_.act_order) fit_original_grids(first + r);
    }
    double loss = 0;
    for (int64_t begin = 0; begin < K; begin += options_.block) {
      const int64_t end = std::min(begin + options_.block, K);
      for (int64_t r = 0; r < n; ++r) loss += quantize_block(first + r, row(r), errors(r), begin, end);
      update_behind(n, begin, end);
    }
    return loss;
  }

 private:
  double* row(int64_t r) { return current_.data() + r * to_.columns; }
  double* errors(int64_t r) { return errors_.data() + r * options_.block; }

  void fit_original_grids(int64_t output) {
    const int64_t group = options_.format.group;
    for (int64_t g = 0; g < options_.format.groups(to_.columns); ++g) {
      group_.clear();
      for (int64_t k = g * group; k < std::min((g + 1) * group, to_.columns); ++k)
        group_.push_back(static_cast<double>(w_(output, k)));
      to_.grid(output, g) = fit_grid(group_, options_.format);
    }
  }

  double quantize_block(int64_t output, double* w, double* e, int64_t begin, int64_t end) {
    const int64_t group = options_.format.group;
    double loss         = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t k = plan_.order[static_cast<size_t>(i)];
      if (!options_.act_order && i % group == 0)
        to_.grid(output, i / group) =
            fit_grid({w + i, static_cast<size_t>(std::min(group, to_.columns - i))}, options_.format);
      const GroupGrid& grid = to_.grid(output, k / group);
      const int code        = grid.encode(w[i], options_.format.bits);
      to_.code(output, k)   = static_cast<uint8_t>(code);
      const double* u       = plan_.u.row(i);
      const double error    = (w[i] - grid.decode(code)) / u[i];
      for (int64_t j = i + 1; j < end; ++j) w[j] -= error * u[j];
      e[i - begin] = error;
      loss += error * error;
    }
    return loss;
  }

  // The inputs behind a block, a few at a time, so that their rows of U stay in the cache for all outputs.
  void update_behind(int64_t n, int64_t begin, int64_t end) {
    constexpr int64_t kColumns = 256;
    for (int64_t first = end; first < to_.columns; first += kColumns) {
      const int64_t last = std::min(first + kColumns, to_.columns);
      for (int64_t r = 0; r < n; ++r)
        for (int64_t i = begin; i < end; ++i) {
          const double error = errors(r)[i - begin];
          const double* u    = plan_.u.row(i);
          double* w          = row(r);
          for (int64_t j = first; j < last; ++j) w[j] -= error * u[j];
        }
    }
  }

  const InputOrder& plan_;
  const GptqOptions& options_;
  QuantizedMatrix& to_;
  const View<const float, 2> w_;
  std::vector<double> current_, errors_, group_;
};

}  // namespace

Result<Gptq> gptq(View<const float, 2> w, const Calibration& calibration, const GptqOptions& options,
                  ThreadPool& threads) {
  const int64_t N = w.extent(0), K = w.extent(1), group = options.format.group;
  FATHOM_EXPECT(calibration.inputs() == K, "the calibration is of this layer's inputs");
  FATHOM_EXPECT(options.block >= 1 && options.damping >= 0, "GPTQ's blocks have an input or more");
  FATHOM_EXPECT(group >= K || options.block % group == 0 || group % options.block == 0,
                "GPTQ's block is a multiple or a divisor of the group");
  if (const auto status = check_weights(w); !status) return status.error();
  Gptq result{.matrix = QuantizedMatrix(options.format, N, K)};
  const auto plan = order_of(calibration, options);
  if (!plan)
    return Error{
        fmt::format("the second moments of {} inputs over {} tokens are not positive definite with "
                    "a damping of {}: calibrate with more tokens or raise the damping",
                    K, calibration.tokens(), options.damping)};
  constexpr int64_t kOutputs = 16;  // at a time, by one thread
  std::vector<double> losses(static_cast<size_t>((N + kOutputs - 1) / kOutputs));
  threads.parallel_for(N, kOutputs, [&](int64_t begin, int64_t end) {
    OutputRows rows(w, *plan, options, result.matrix);
    for (int64_t first = begin; first < end; first += kOutputs)
      losses[static_cast<size_t>(first / kOutputs)] = rows.quantize(first, std::min(kOutputs, end - first));
  });
  result.loss = std::accumulate(losses.begin(), losses.end(), 0.0);
  return result;
}

}  // namespace fathom::model
