// What pipeline_schedule.js calls: one schedule with its passes, and the figures of the others.
#include "book/pipeline_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

Pipeline pipeline;
PipelineModel model;

}  // namespace

WASM_EXPORT(set_times)
void set_times(double forward, double backward, double weight, double both, double transfer) {
  pipeline.forward  = forward;
  pipeline.backward = backward;
  pipeline.weight   = weight;
  pipeline.both     = both;
  pipeline.transfer = transfer;
}

// Runs the schedule; or why it cannot be run, and the getters below tell of the one before.
WASM_EXPORT(run) int32_t run(int32_t schedule, int32_t stages, int32_t microbatches, int32_t chunks) {
  pipeline.schedule        = static_cast<Schedule>(schedule);
  pipeline.stages          = stages;
  pipeline.microbatches    = microbatches;
  pipeline.chunks          = chunks;
  const Impossible refused = impossible(pipeline);
  if (refused == Impossible::none) model.run(pipeline);
  return static_cast<int32_t>(refused);
}

WASM_EXPORT(total) double total() { return model.total(); }
WASM_EXPORT(bubble) double bubble() { return model.bubble(); }
WASM_EXPORT(ops) int32_t ops(int32_t stage) { return model.ops(stage); }
WASM_EXPORT(op_kind) int32_t op_kind(int32_t stage, int32_t i) {
  return static_cast<int32_t>(model.op(stage, i).kind);
}
WASM_EXPORT(op_microbatch) int32_t op_microbatch(int32_t stage, int32_t i) {
  return model.op(stage, i).microbatch;
}
WASM_EXPORT(op_part) int32_t op_part(int32_t stage, int32_t i) { return model.op(stage, i).part; }
WASM_EXPORT(op_backward_microbatch) int32_t op_backward_microbatch(int32_t stage, int32_t i) {
  return model.op(stage, i).backward_microbatch;
}
WASM_EXPORT(op_begin) double op_begin(int32_t stage, int32_t i) { return model.op(stage, i).begin; }
WASM_EXPORT(op_end) double op_end(int32_t stage, int32_t i) { return model.op(stage, i).end; }
WASM_EXPORT(held_at) double held_at(int32_t stage, double time) { return model.held(stage, time); }
WASM_EXPORT(most_held) double most_held(int32_t stage) { return model.most_held(stage); }
