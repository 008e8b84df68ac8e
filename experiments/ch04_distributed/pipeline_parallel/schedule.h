// Schedules of pipeline parallelism: which pass a stage makes when. And a model of how long one takes.
//
//   GPipe (Huang et al., 2019)           all forward passes, then all backward passes
//   1F1B (PipeDream-Flush, 2021)         a backward pass as soon as there is one: fewer activations are kept
//   interleaved 1F1B (Megatron, 2021)    a stage has several chunks of the model: shorter bubbles
//   ZB-H1 (Qi et al., 2023)              the gradients of weights are a pass of their own, which fills
//   bubbles
//   DualPipe (DeepSeek-AI, 2024)         micro-batches from both ends of the pipeline, a forward and a
//   backward
//                                        pass at once; two copies of the model
#pragma once

#include <cstdint>
#include <vector>

namespace fathom::lab::pipeline_parallel {

struct Pass {
  enum Kind : uint8_t {
    forward,
    backward,              // both gradients
    input_gradient,        // what the stage before waits for
    weight_gradient,       // what nobody waits for
    forward_and_backward,  // of two micro-batches at once: the computation of one hides the messages of the
                           // other
  };
  Kind kind       = forward;
  int micro_batch = 0;
  // Of the stage: part chunk * stages + stage of the model. DualPipe: 0 for micro-batches that come from the
  // first stage and 1 for those from the last, which the stage has another part of a copy of the model for.
  int chunk = 0;
  // Of forward_and_backward, whose forward pass the fields above say.
  int backward_micro_batch = 0, backward_chunk = 0;

  bool operator==(const Pass&) const = default;
};

// [stage]: its passes in their order.
using Schedule = std::vector<std::vector<Pass>>;

// Each for at least one stage and micro-batch.
Schedule gpipe(int stages, int micro_batches);
Schedule one_f_one_b(int stages, int micro_batches);
// micro_batches is a multiple of stages.
Schedule interleaved(int stages, int micro_batches, int chunks);
Schedule zero_bubble_h1(int stages, int micro_batches);
// An even number of stages, and of micro-batches at least two for each stage; half of them, numbered from 0,
// come from each end.
Schedule dualpipe(int stages, int micro_batches);

// Of one micro-batch in a whole stage; a chunk takes its share.
struct PassTimes {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
  double forward_and_backward = 3;
};

// Which part of the model a stage's chunk is.
enum class Parts : uint8_t {
  in_turn,    // chunk * stages + stage
  both_ways,  // chunk 0 the stage's, chunk 1 that of a second copy from the other end (DualPipe)
};

struct ModelledRun {
  bool complete = false;  // false: passes wait for each other in a circle, or for passes that are missing
  double time   = 0;
  double bubble = 0;              // time less the work of the stage that works most
  int kept      = 0;              // micro-batches of which a stage keeps activations at once, the most of any
  std::vector<int> kept_by = {};  // [stage], in chunks
};

// Every stage makes its passes in order, each as soon as what it needs is there; moving activations takes no
// time. Activations are kept from a forward pass until the weights' gradient.
ModelledRun modelled(const Schedule& schedule, const PassTimes& times, Parts parts = Parts::in_turn);

}  // namespace fathom::lab::pipeline_parallel
