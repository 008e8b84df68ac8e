// The problem: one training step of a model of two layers, each on a rank of its own. A batch of kRows rows
// goes forward through both, and its gradient back. The variants differ in the schedule alone: into how many
// micro-batches the batch is cut, and which pass a stage makes when.
//
//   forward           y = x W                 x of stage 1 is y of stage 0
//   input_gradient    dx = dy W^T             dy of stage 0 is dx of stage 1
//   weight_gradient   dW += x^T dy
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "core/expect.h"
#include "lab/problem.h"
#include "lab/rank.h"
#include "schedule.h"

namespace fathom::lab::pipeline_parallel {

constexpr int kStages    = 2;
constexpr int64_t kRows  = 256;
constexpr int64_t kWidth = 128;  // of both layers

// What ranks share: a message for each micro-batch and direction.
struct Wire {
  uint64_t arrived;  // the number of the step whose message this is
  uint64_t nonce;
  uint64_t unused[6];
};
constexpr int kMostMicroBatches = 32;
constexpr int64_t kWireBytes =
    2 * kMostMicroBatches * int64_t{sizeof(Wire)} + 2 * kRows * kWidth * int64_t{sizeof(float)};

struct TwoStages {
  View<const float, 2> x, loss_gradient;  // of stage 0, of stage 1
  View<const float, 2> weight;            // of each
  View<float, 2> dw, dx;                  // of each
  View<float, 2> kept, dy;                // what stage 1 and stage 0 received, until its last use
  View<uint64_t, 1> nonces;
  int micro_batches, stage;

  TwoStages(const Point& at, Arena& arena, const Rank& rank)
      : x(arena.input<float>({kRows, kWidth}, Uniform{-1, 1})),
        loss_gradient(arena.input<float>({kRows, kWidth}, Uniform{-1, 1})),
        weight(arena.input<float>({kWidth, kWidth}, Uniform{-1, 1})),
        dw(arena.output<float>({kWidth, kWidth})),
        dx(arena.output<float>({kRows, kWidth})),
        kept(arena.workspace<float>({kRows, kWidth})),
        dy(arena.workspace<float>({kRows, kWidth})),
        nonces(arena.workspace<uint64_t>({1})),
        micro_batches(static_cast<int>(at["micro_batches"])),
        stage(rank.rank()) {
    FATHOM_EXPECT(micro_batches >= 1 && micro_batches <= kMostMicroBatches && kRows % micro_batches == 0,
                  "micro_batches divides the 256 rows of a batch, and is at most 32");
  }

  // Three products of a layer; each rank has one.
  Cost cost() const {
    return {.read = weight.bytes(), .written = dw.bytes(), .flops = 6.0 * kRows * kWidth * kWidth};
  }
  uint64_t nonce_sum(Context&) const { return nonces(0); }
  void check(Checker& checker, const AllRanks<TwoStages>& ranks) const;
};

using Step = std::function<void(const TwoStages&, Context&)>;
// A step by that schedule, which was made for so many micro-batches.
Step step_by(Schedule schedule, int micro_batches);

Step whole_batch(const TwoStages& p, Context& context);
Step all_forward_first(const TwoStages& p, Context& context);
Step backward_early(const TwoStages& p, Context& context);
Step weights_last(const TwoStages& p, Context& context);

}  // namespace fathom::lab::pipeline_parallel
