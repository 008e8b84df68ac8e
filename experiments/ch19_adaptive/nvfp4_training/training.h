// The problem: steps of AdamW on a small MoE model over texts of the bundled model's tasks, in which the
// operands of linear layers are rounded to few bits (src/train/precision.h). A variant is a recipe.
//
// The formats are emulated: numbers are rounded to what the format holds and multiplied in fp32, so the time
// of a call says what rounding costs on a CPU and nothing of the formats' speed. What is measured is the
// loss.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/problem.h"
#include "model/config.h"
#include "train/precision.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::nvfp4_training {

inline constexpr int64_t kBatchTokens = 512;  // of a step

struct Training {
  // [(steps + 1) kBatchTokens, 2]: a token, and the one that follows it; the last batch is held out.
  View<const int32_t, 2> text;
  View<float, 1> losses;     // [steps], before each step
  View<float, 1> last_loss;  // [1]: mean of the last quarter of the steps; 0 without steps
  View<float, 1> held_out;   // [1]: of the last batch, after the last step, without rounding
  int64_t length;            // tokens of a sequence
  int64_t experts;

  Training(const Point& at, Arena& arena);
  Cost cost() const;
  // The losses are near those of training without rounding.
  void check(Checker& checker) const;
  // loss_increase: what last_loss has over training without rounding.
  void metrics(CallMetrics& metrics) const;

  int64_t steps() const { return losses.extent(0); }
};

// Two layers, width 128, experts of 64, two a token; the bundled model's vocabulary.
model::Config small_config(int64_t experts);

// From weights of one seed, the same for all recipes.
struct Losses {
  std::vector<float> of_steps;
  float last = 0, held_out = 0;  // as Training::last_loss and held_out
};
Losses train(const Training& p, const train::Recipe& recipe, ThreadPool& threads);
void train_into(const Training& p, const train::Recipe& recipe, Context& context);

void fp8(const Training& p, Context& context);
void bf16(const Training& p, Context& context);
void mxfp8(const Training& p, Context& context);
void nvfp4(const Training& p, Context& context);
void nvfp4_no_hadamard(const Training& p, Context& context);
void nvfp4_no_squares(const Training& p, Context& context);
void nvfp4_nearest(const Training& p, Context& context);
void nvfp4_plain(const Training& p, Context& context);

}  // namespace fathom::lab::nvfp4_training
