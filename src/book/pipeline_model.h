// Pipeline parallelism: the order in which each stage runs the forward and backward passes of its
// microbatches, the times that follow, and the activations that are held. The model of the book's pipeline
// schedules; freestanding, for it is compiled to WebAssembly too.
#pragma once

#include <stdint.h>

namespace fathom::book {

inline constexpr int32_t kMostStages       = 16;
inline constexpr int32_t kMostMicrobatches = 64;
inline constexpr int32_t kMostChunks       = 4;
inline constexpr int32_t kMostOps          = 2 * kMostMicrobatches * kMostChunks;  // of a stage

enum class Schedule : int32_t {
  gpipe,        // all forward passes, then all backward passes (Huang et al., 2019)
  one_f_one_b,  // a backward pass as early as possible (Narayanan et al., 2019)
  interleaved,  // 1F1B with several chunks of the model on each stage (Narayanan et al., 2021)
  zero_bubble,  // ZB-H1: gradients of the weights are computed where a stage would wait (Qi et al., 2023)
  dualpipe,     // microbatches from both ends, a forward and a backward pass at once (DeepSeek-AI, 2024)
};

// Times of one microbatch on one stage.
struct Pipeline {
  Schedule schedule    = Schedule::one_f_one_b;
  int32_t stages       = 4;
  int32_t microbatches = 8;
  int32_t chunks       = 2;  // of the model on a stage; interleaved alone
  double forward       = 1;
  double backward      = 2;  // both gradients
  double weight        = 1;  // of it, the gradients of the weights
  double both          = 3;  // a forward and a backward pass at once; DualPipe alone
  double transfer      = 0;  // from a stage to its neighbour
};

enum class Impossible : int32_t {
  none,
  out_of_range,
  microbatches_not_a_multiple,  // interleaved: of the stages
  stages_not_even,              // DualPipe
  microbatches_not_even,        // DualPipe: one half comes from each end
  too_few_microbatches,         // DualPipe: fewer than two for each stage
};
Impossible impossible(const Pipeline& pipeline);

enum class OpKind : int32_t { forward, backward, input_gradient, weight_gradient, forward_and_backward };

struct PipelineOp {
  OpKind kind;
  int32_t microbatch;  // forward_and_backward: of the forward pass
  int32_t part;        // interleaved: the chunk; DualPipe: the end that the microbatch came from
  int32_t backward_microbatch;
  int32_t backward_part;
  double begin, end;
};

class PipelineModel {
 public:
  // The schedule must be possible.
  void run(const Pipeline& pipeline);

  int32_t ops(int32_t stage) const { return count_[stage]; }
  const PipelineOp& op(int32_t stage, int32_t i) const { return op_[stage][i]; }
  double total() const { return total_; }
  double busy(int32_t stage) const;
  double bubble() const;  // share of all stages' time in which they wait

  // Activations that a stage holds, in those of one microbatch on one stage: from the begin of a forward pass
  // to the end of the pass that needs them last.
  double held(int32_t stage, double time) const;
  double most_held(int32_t stage) const;

 private:
  static constexpr int32_t kParts = kMostStages * kMostChunks;

  void append(int32_t stage, OpKind kind, int32_t microbatch, int32_t part = 0);
  void append_both(int32_t stage, int32_t microbatch, int32_t part, int32_t backward_microbatch,
                   int32_t backward_part);
  void order_one_f_one_b(int32_t stage);
  void order_interleaved(int32_t stage);
  void order_zero_bubble(int32_t stage);
  void order_dualpipe(int32_t stage);
  int32_t place(int32_t stage, int32_t part) const;
  int32_t stage_of(int32_t place) const;
  bool arrived(const double (&done)[kParts][kMostMicrobatches], int32_t place, int32_t from,
               int32_t microbatch, int32_t stage, double& ready) const;
  bool ready(int32_t stage, const PipelineOp& op, double& time) const;
  void set_times();

  // All zero, so that a static model takes no room in the module.
  Pipeline pipeline_ = {Schedule::gpipe, 0, 0, 0, 0, 0, 0, 0, 0};
  int32_t count_[kMostStages];
  PipelineOp op_[kMostStages][kMostOps];
  double forward_done_[kParts][kMostMicrobatches];   // by place in the model; negative: not yet
  double gradient_done_[kParts][kMostMicrobatches];  // of the inputs
  double total_;
};

}  // namespace fathom::book
