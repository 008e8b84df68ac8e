#include "model/unembedding_screen.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/gumbel.h"
#include "core/int8_group.h"
#include "kernels/gemm/int8_row_reference.h"

// Compiled with -O3 (CMakeLists.txt): the loops over kLanes vectorise.

namespace fathom::model {
namespace {

constexpr int kLanes     = 8;
constexpr int64_t kChunk = 4096;  // tokens of a thread at a time

// For the rounding of the norms, of the sums of both products and of bounds. A sum of K products in 8 lanes
// is off by less than K / 8 2^-24 of the product of the norms: 2^-15 with 2880 columns.
constexpr double kMore = 1.001;
double rounding(int64_t depth) { return 0x1p-14 + static_cast<double>(depth) * 0x1p-26; }

// |x| and |x - x~|.
struct Norms {
  double of_x, of_error;
};
Norms norms_of(std::span<const float> x) {
  const kernels::Int8Row in_int8(x);
  double squares = 0, errors = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    const auto number = static_cast<double>(x[k]);
    const double off  = number - in_int8.values[k] * static_cast<double>(in_int8.scales[k / kInt8Group]);
    squares += number * number;
    errors += off * off;
  }
  return {std::sqrt(squares), std::sqrt(errors)};
}

float sum_of(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

UnembeddingScreen::UnembeddingScreen(View<const bf16, 2> w, ThreadPool& threads)
    : w_(w),
      rows_(w.extent(0)),
      depth_(w.extent(1)),
      most_candidates_(std::max<int64_t>(rows_ / 64, 1)),
      values_(rows_ * depth_),
      scales_(rows_ * int8_groups(depth_)),
      errors_(rows_),
      norms_(rows_),
      lower_(rows_),
      upper_(rows_),
      candidate_weights_(most_candidates_ * depth_),
      candidate_logits_(most_candidates_) {
  const auto H = static_cast<size_t>(depth_), groups = static_cast<size_t>(int8_groups(depth_));
  threads.parallel_for(rows_, 256, [&](int64_t begin, int64_t end) {
    std::vector<float> row(H), decoded(H);
    for (int64_t v = begin; v < end; ++v) {
      const bf16* of_w = &w(v, 0);
      for (size_t k = 0; k < H; ++k) row[k] = static_cast<float>(of_w[k]);
      const std::span values(values_.data() + v * depth_, H);
      const std::span scales(scales_.data() + v * int8_groups(depth_), groups);
      encode_int8(row, values, scales);
      decode_int8(values, scales, decoded);
      double errors = 0, squares = 0;
      for (size_t first = 0; first < H; first += 256) {  // few enough for fp32 to be exact to 2^-19
        float error[kLanes] = {}, square[kLanes] = {};
        const size_t until = std::min<size_t>(first + 256, H);
        size_t k           = first;
        for (; k + kLanes <= until; k += kLanes)
          for (size_t l = 0; l < kLanes; ++l) {
            const float off = row[k + l] - decoded[k + l];
            error[l] += off * off;
            square[l] += decoded[k + l] * decoded[k + l];
          }
        for (; k < until; ++k) {
          const float off = row[k] - decoded[k];
          error[0] += off * off;
          square[0] += decoded[k] * decoded[k];
        }
        errors += static_cast<double>(sum_of(error));
        squares += static_cast<double>(sum_of(square));
      }
      errors_.data()[v] = static_cast<float>(std::sqrt(errors) * kMore);
      norms_.data()[v]  = static_cast<float>(std::sqrt(squares) * kMore);
    }
  });
}

kernels::Int8Weights UnembeddingScreen::copy() const {
  return {View<const int8_t, 2>(values_.data(), {rows_, depth_}),
          View<const bf16, 2>(scales_.data(), {rows_, int8_groups(depth_)})};
}

int64_t UnembeddingScreen::bytes() const {
  return values_.size() + 2 * (scales_.size() + candidate_weights_.size()) +
         4 * (errors_.size() + norms_.size() + lower_.size() + upper_.size() + candidate_logits_.size());
}

bool UnembeddingScreen::find_candidates(std::span<const float> x, std::span<const float> y,
                                        const DrawRule& rule, ThreadPool& threads) {
  const auto [norm, error] = norms_of(x);
  const auto by_error      = static_cast<float>(norm * kMore);
  const auto by_norm       = static_cast<float>((error + rounding(depth_) * norm) * kMore);
  const int64_t chunks     = (rows_ + kChunk - 1) / kChunk;
  of_chunks_.resize(static_cast<size_t>(chunks));
  std::vector<double> best(static_cast<size_t>(chunks));  // score of a lower bound
  std::atomic<bool> finite = true;
  const auto chunk_of      = [&](const Buffer<float>& of, int64_t chunk) {
    return std::span<const float>(of.data() + chunk * kChunk,
                                  static_cast<size_t>(std::min(kChunk, rows_ - chunk * kChunk)));
  };
  threads.parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t first = chunk * kChunk, until = std::min(first + kChunk, rows_);
      for (int64_t v = first; v < until; ++v) {
        const float b    = errors_.data()[v] * by_error + norms_.data()[v] * by_norm;
        lower_.data()[v] = y[static_cast<size_t>(v)] - b;
        upper_.data()[v] = y[static_cast<size_t>(v)] + b;
      }
      float lanes[kLanes] = {};  // NaN where a bound is not finite
      int64_t v           = first;
      for (; v + kLanes <= until; v += kLanes)
        for (int l = 0; l < kLanes; ++l) lanes[l] += (upper_.data()[v + l] - lower_.data()[v + l]) * 0;
      for (; v < until; ++v) lanes[0] += (upper_.data()[v] - lower_.data()[v]) * 0;
      if (!(sum_of(lanes) == 0)) {
        finite = false;
        continue;
      }
      const auto lower = chunk_of(lower_, chunk);
      best[static_cast<size_t>(chunk)] =
          rule.temperature > 0 ? gumbel_best(lower, rule.temperature, rule.seed, rule.position, first).sum
                               : static_cast<double>(*std::max_element(lower.begin(), lower.end()));
    }
  });
  if (!finite) return false;
  double least = *std::max_element(best.begin(), best.end());
  if (rule.temperature > 0) least -= 1e-9 * (1 + std::abs(least));  // for the rounding of sums
  threads.parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      auto& ids = of_chunks_[static_cast<size_t>(chunk)];
      ids.clear();
      const int64_t first = chunk * kChunk;
      const auto upper    = chunk_of(upper_, chunk);
      if (rule.temperature > 0) {
        gumbel_at_least(upper, rule.temperature, rule.seed, rule.position, least, ids, first);
      } else {
        for (size_t i = 0; i < upper.size(); ++i)
          if (static_cast<double>(upper[i]) >= least) ids.push_back(first + static_cast<int64_t>(i));
      }
    }
  });
  candidates_.clear();
  for (const auto& ids : of_chunks_) candidates_.insert(candidates_.end(), ids.begin(), ids.end());
  return true;
}

void UnembeddingScreen::logits(const Ops& ops, View<const float, 2> x, std::span<const DrawRule> rules,
                               View<float, 2> logits, const Execution& on) {
  using kernels::Output;
  const int64_t R = x.extent(0);
  ops.linear_int8(x, copy(), {}, Output::overwrite, logits, on);
  for (int64_t r = 0; r < R; ++r) {
    const std::span<float> y(&logits(r, 0), static_cast<size_t>(rows_));
    const std::span<const float> row(&x(r, 0), static_cast<size_t>(depth_));
    const bool found = find_candidates(row, y, rules[static_cast<size_t>(r)], *on.threads);
    const auto n     = std::ssize(candidates_);
    // A row that cannot be screened needs all of the weights, which the others then get too.
    if (!found || n > most_candidates_) return ops.linear(x, w_, {}, Output::overwrite, logits, on);
    on.threads->parallel_for(n, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::copy_n(&w_(candidates_[static_cast<size_t>(i)], 0), depth_,
                    candidate_weights_.data() + i * depth_);
    });
    ops.linear({row.data(), {1, depth_}}, View<const bf16, 2>(candidate_weights_.data(), {n, depth_}), {},
               Output::overwrite, {candidate_logits_.data(), {1, n}}, on);
    std::fill(y.begin(), y.end(), -INFINITY);
    for (int64_t i = 0; i < n; ++i)
      y[static_cast<size_t>(candidates_[static_cast<size_t>(i)])] = candidate_logits_.data()[i];
  }
}

}  // namespace fathom::model
