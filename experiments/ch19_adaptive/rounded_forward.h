// The problem of the chapter's experiments with precision: a forward pass of models/tiny over texts of its
// tasks, in which the inputs of products are rounded to few bits. A variant chooses the format of each.
//
// The formats are emulated: numbers are rounded to what the format holds and multiplied in fp32, so the time
// of a call says what rounding costs on a CPU and nothing of the formats' speed. What is measured is quality.
//
//   fp4    NVFP4: 16 E2M1 codes share an E4M3 scale, and a row's scales share an fp32 scale
//   fp8    E4M3 codes, and an fp32 scale for each row
//   bf16   no scale
//
// Rounded are the inputs of q, k and v, of the attention's output projection, and of the experts. Router and
// unembedding keep theirs, as in the published checkpoints of such models.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lab/problem.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::rounded_forward {

enum class Format { fp4, fp8, bf16 };
inline constexpr int64_t kFormats = 3;

// Bits of a number, its share of scales included, in rows of `columns`.
double bits_of(Format format, int64_t columns);
// Rounds a row in place. A multiple of 16 finite numbers.
void round_row(Format format, float* row, int64_t columns);
// The squares of the numbers that a format leaves, and of the errors it makes; the row stays as it is.
struct Squares {
  double numbers = 0, errors = 0;
  double relative_error() const;  // rms of the errors over rms of the numbers; 0 without numbers
};
Squares squares_of(Format format, const float* row, int64_t columns);

struct RoundedForward {
  // A row for each token: its id, its position in its text, and the token that follows it in a right answer,
  // or -1 where none does. A text begins at each position 0.
  View<const int32_t, 2> rows;  // [T, 3]
  View<float, 2> logits;        // [T, V]
  // What the variant chose: shares of the numbers in each format, bits of a number, relative error.
  View<float, 1> chosen;  // [kFormats + 2]

  RoundedForward(const Point& at, Arena& arena);
  Cost cost() const;
  // The logits differ from those without rounding by no more than the largest of the row's.
  void check(Checker& checker) const;
  // bits_per_number, relative_error, the share of each format; and against the pass without rounding: kl in
  // nats a token, nll_increase of the answers' tokens, and the share of tokens whose likeliest successor is
  // another.
  void metrics(CallMetrics& metrics) const;

  int64_t tokens() const { return rows.extent(0); }
};

// The inputs of products, three for each layer: of q, k and v; of the output projection; of the experts.
int64_t sites();

// Rounds x [T, columns] in place, the inputs of that site.
using Round = std::function<void(int64_t site, View<float, 2> x)>;
// One pass; an empty `round` rounds nothing.
void forward(View<const int32_t, 2> rows, const Round& round, View<float, 2> logits);

// A pass whose formats `format_of(site, row, x)` chooses; x is the row. Fills p.logits and p.chosen.
using FormatOf = std::function<Format(int64_t site, int64_t row, const float* x)>;
void forward_in(const RoundedForward& p, const FormatOf& format_of);

// Without rounding, as the decoder knows it: the entropy in nats of the distribution after each row.
std::vector<double> entropies(const RoundedForward& p);

}  // namespace fathom::lab::rounded_forward
