// One training step of a model of two layers, each on a GPU of its own. A batch goes forward through both,
// and its gradient back. The variants differ in the schedule alone: into how many micro-batches the batch is
// cut, and which pass a stage makes when (experiments/ch04_distributed/pipeline_parallel/schedule.h).
//
//   forward           y(t, o)  = sum_i x(t, i) weight(o, i)       x of stage 1 is y of stage 0
//   input_gradient    dx(t, i) = sum_o dy(t, o) weight(o, i)      dy of stage 0 is dx of stage 1
//   weight_gradient   dw(o, i) = sum_t dy(t, o) x(t, i)           summed over micro-batches in fp32
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include "core/dtype.h"
#include "core/expect.h"
#include "experiments/ch04_distributed/pipeline_parallel/schedule.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::pipeline_parallel_gpu {

inline constexpr int kStages           = 2;
inline constexpr int kMostMicroBatches = 32;

using Matrix = View<const bf16, 2>;

struct Stages {
  Matrix inputs;             // [rows, width]: the batch on stage 0, the loss' gradient on stage 1
  Matrix weight;             // [width, width]
  View<bf16, 2> y, dx;       // [rows, width]
  View<bf16, 2> arrived;     // from the other stage: dy of stage 0, x of stage 1
  View<float, 2> dw;         // [width, width]
  View<uint64_t, 2> nonces;  // of both ranks, 16 bytes each, sent as rows are
  int micro_batches, stage;

  Stages(const Point& at, Arena& arena, const Rank& me)
      : inputs(arena.input<bf16>({at["rows"], at["width"]}, Normal{})),
        weight(arena.input<bf16>({at["width"], at["width"]},
                                 Normal{0, 1 / std::sqrt(static_cast<double>(at["width"]))})),
        y(arena.output<bf16>({at["rows"], at["width"]})),
        dx(arena.output<bf16>({at["rows"], at["width"]})),
        arrived(arena.output<bf16>({at["rows"], at["width"]})),
        dw(arena.output<float>({at["width"], at["width"]})),
        nonces(arena.workspace<uint64_t>({kStages, 2})),
        micro_batches(static_cast<int>(at["micro_batches"])),
        stage(me.rank()) {
    FATHOM_EXPECT(micro_batches >= 1 && micro_batches <= kMostMicroBatches && rows() % micro_batches == 0,
                  "micro_batches divides the rows of a batch, and is at most 32");
  }

  int64_t rows() const { return inputs.extent(0); }
  int64_t width() const { return inputs.extent(1); }
  Matrix x() const { return stage == 0 ? inputs : Matrix(arrived); }
  Matrix dy() const { return stage == 0 ? Matrix(arrived) : inputs; }

  // Three products of a layer; each rank has one.
  Cost cost() const {
    return {.read      = inputs.bytes() + weight.bytes(),
            .written   = y.bytes() + dx.bytes() + dw.bytes(),
            .flops     = 6 * static_cast<double>(inputs.size()) * static_cast<double>(width()),
            .flop_type = DType::bf16};
  }
  void check(Checker& checker, const AllRanks<Stages>& ranks) const;
  void put_nonce(Context& context) const;
  uint64_t nonce_sum(Context& context) const;
};

using Call = std::function<void(const Stages&, Context&)>;
// A step by that schedule, which was made for so many micro-batches. By both ranks at the same time.
FATHOM_CUDA_LAUNCHER Call step_by(const Stages& p, Context& context,
                                  const pipeline_parallel::Schedule& schedule, int micro_batches);

}  // namespace fathom::lab::pipeline_parallel_gpu
