#include "book/pipeline_model.h"

namespace fathom::book {
namespace {

constexpr double kNotYet = -1;

int32_t smaller_of(int32_t a, int32_t b) { return a < b ? a : b; }

bool has_forward(OpKind kind) { return kind == OpKind::forward || kind == OpKind::forward_and_backward; }

// Whether it is the last pass that needs a microbatch's activations.
bool releases(OpKind kind) {
  return kind == OpKind::backward || kind == OpKind::weight_gradient || kind == OpKind::forward_and_backward;
}

}  // namespace

Impossible impossible(const Pipeline& p) {
  const bool counts_fit = p.stages >= 1 && p.stages <= kMostStages && p.microbatches >= 1 &&
                          p.microbatches <= kMostMicrobatches && p.chunks >= 1 && p.chunks <= kMostChunks;
  const bool times_fit =
      p.forward >= 0 && p.weight >= 0 && p.backward >= p.weight && p.both >= 0 && p.transfer >= 0;
  if (!counts_fit || !times_fit) return Impossible::out_of_range;
  if (p.schedule == Schedule::interleaved && p.microbatches % p.stages != 0)
    return Impossible::microbatches_not_a_multiple;
  if (p.schedule == Schedule::dualpipe) {
    if (p.stages % 2 != 0) return Impossible::stages_not_even;
    if (p.microbatches % 2 != 0) return Impossible::microbatches_not_even;
    if (p.microbatches < 2 * p.stages) return Impossible::too_few_microbatches;
  }
  return Impossible::none;
}

void PipelineModel::append(int32_t stage, OpKind kind, int32_t microbatch, int32_t part) {
  op_[stage][count_[stage]++] = {kind, microbatch, part, microbatch, part, 0, 0};
}

void PipelineModel::append_both(int32_t stage, int32_t microbatch, int32_t part, int32_t backward_microbatch,
                                int32_t backward_part) {
  op_[stage][count_[stage]++] = {
      OpKind::forward_and_backward, microbatch, part, backward_microbatch, backward_part, 0, 0};
}

// Forward passes until the first gradient can come back, then one of each in turn.
void PipelineModel::order_one_f_one_b(int32_t stage) {
  const int32_t m = pipeline_.microbatches, warm_up = smaller_of(m, pipeline_.stages - stage - 1);
  for (int32_t i = 0; i < warm_up; ++i) append(stage, OpKind::forward, i);
  for (int32_t i = 0; i < m; ++i) {
    if (warm_up + i < m) append(stage, OpKind::forward, warm_up + i);
    append(stage, OpKind::backward, i);
  }
}

// The same for chunks: as many microbatches as stages go through a chunk before the next chunk's turn.
void PipelineModel::order_interleaved(int32_t stage) {
  const int32_t p = pipeline_.stages, v = pipeline_.chunks, passes = pipeline_.microbatches * v;
  const int32_t warm_up = smaller_of(passes, 2 * (p - stage - 1) + (v - 1) * p);
  const auto chunk      = [&](int32_t i) { return i / p % v; };
  const auto microbatch = [&](int32_t i) { return i / (p * v) * p + i % p; };
  for (int32_t i = 0; i < warm_up; ++i) append(stage, OpKind::forward, microbatch(i), chunk(i));
  for (int32_t i = 0; i < passes; ++i) {
    const int32_t next = warm_up + i;
    if (next < passes) append(stage, OpKind::forward, microbatch(next), chunk(next));
    append(stage, OpKind::backward, microbatch(i), v - 1 - chunk(i));
  }
}

// 1F1B, in which stage s postpones the gradients of weights by s microbatches; so every stage holds as many
// activations as the first, and has work for the time in which it waits.
void PipelineModel::order_zero_bubble(int32_t stage) {
  const int32_t m = pipeline_.microbatches, warm_up = smaller_of(m, pipeline_.stages - stage - 1);
  for (int32_t i = 0; i < warm_up; ++i) append(stage, OpKind::forward, i);
  for (int32_t i = 0; i < m; ++i) {
    if (warm_up + i < m) append(stage, OpKind::forward, warm_up + i);
    append(stage, OpKind::input_gradient, i);
    if (i >= stage) append(stage, OpKind::weight_gradient, i - stage);
  }
  for (int32_t i = m > stage ? m - stage : 0; i < m; ++i) append(stage, OpKind::weight_gradient, i);
}

// The published sequence. `near` is the end of the pipeline that is closer to this stage: its microbatches
// come here first. Every stage holds two places of the model, one for each direction.
void PipelineModel::order_dualpipe(int32_t stage) {
  const int32_t p = pipeline_.stages, half = pipeline_.microbatches / 2;
  const int32_t from_end = smaller_of(stage, p - 1 - stage), inner = p / 2 - from_end - 1;
  const int32_t near = stage < p / 2 ? 0 : 1, far = 1 - near;
  int32_t forwards[2] = {0, 0}, backwards[2] = {0, 0};
  struct {
    int32_t microbatch, end;
  } postponed[kMostMicrobatches];
  int32_t first_postponed = 0, last_postponed = 0;

  const auto forward  = [&](int32_t end) { append(stage, OpKind::forward, forwards[end]++, end); };
  const auto backward = [&](int32_t end, bool postpone_weights) {
    append(stage, postpone_weights ? OpKind::input_gradient : OpKind::backward, backwards[end], end);
    if (postpone_weights) postponed[last_postponed++] = {backwards[end], end};
    ++backwards[end];
  };
  const auto weights = [&] {
    append(stage, OpKind::weight_gradient, postponed[first_postponed].microbatch,
           postponed[first_postponed].end);
    ++first_postponed;
  };
  const auto both = [&](int32_t end, int32_t backward_end) {
    append_both(stage, forwards[end]++, end, backwards[backward_end]++, backward_end);
  };

  for (int32_t i = 0; i < 2 * inner; ++i) forward(near);
  for (int32_t i = 0; i <= from_end; ++i) {
    forward(near);
    forward(far);
  }
  for (int32_t i = 0; i < inner; ++i) {
    backward(far, true);
    weights();
    forward(far);
  }
  for (int32_t i = 0; i < half - p + from_end + 1; ++i) {
    if (i == 0 && inner == 0) {  // in the middle nothing would be gained by waiting for both
      forward(near);
      backward(far, false);
    } else {
      both(near, far);
    }
    both(far, near);
  }
  for (int32_t i = 0; i < inner; ++i) {
    backward(far, false);
    both(far, near);
  }
  // Of the remaining backward passes the second half postpones the gradients of weights.
  for (int32_t i = 0; i < 2 * (from_end + 1); ++i) backward(i % 2 == 0 ? far : near, i > from_end);
  for (int32_t i = 0; i < inner; ++i) {
    weights();
    backward(near, true);
  }
  while (first_postponed < last_postponed) weights();
}

// The place in the model, from 0, of a stage's part. DualPipe has two copies of the model, the second one
// reversed.
int32_t PipelineModel::place(int32_t stage, int32_t part) const {
  const int32_t p = pipeline_.stages;
  if (pipeline_.schedule == Schedule::dualpipe) return part == 0 ? stage : 2 * p - 1 - stage;
  return part * p + stage;
}

int32_t PipelineModel::stage_of(int32_t place) const {
  const int32_t p = pipeline_.stages;
  return pipeline_.schedule == Schedule::dualpipe && place >= p ? 2 * p - 1 - place : place % p;
}

// Whether the pass at `from` that this one waits for is done, and not before when. No pass comes before the
// first place of a copy of the model, nor back to the last one.
bool PipelineModel::arrived(const double (&done)[kParts][kMostMicrobatches], int32_t place, int32_t from,
                            int32_t microbatch, int32_t stage, double& ready) const {
  const int32_t length =
      pipeline_.stages * (pipeline_.schedule == Schedule::interleaved ? pipeline_.chunks : 1);
  if (from < 0 || from / length != place / length) return true;
  if (done[from][microbatch] == kNotYet) return false;
  const double there = done[from][microbatch] + (stage_of(from) == stage ? 0 : pipeline_.transfer);
  if (there > ready) ready = there;
  return true;
}

bool PipelineModel::ready(int32_t stage, const PipelineOp& op, double& time) const {
  if (has_forward(op.kind)) {
    const int32_t at = place(stage, op.part);
    if (!arrived(forward_done_, at, at - 1, op.microbatch, stage, time)) return false;
  }
  if (op.kind == OpKind::forward) return true;
  const int32_t at = place(stage, op.backward_part), microbatch = op.backward_microbatch;
  if (op.kind == OpKind::weight_gradient) return arrived(gradient_done_, at, at, microbatch, stage, time);
  return arrived(forward_done_, at, at, microbatch, stage, time) &&
         arrived(gradient_done_, at, at + 1, microbatch, stage, time);
}

// Each stage runs its passes in order, each as soon as what it needs is there.
void PipelineModel::set_times() {
  const Pipeline& p  = pipeline_;
  const double share = p.schedule == Schedule::interleaved ? 1.0 / p.chunks : 1;
  const auto time_of = [&](OpKind kind) {
    switch (kind) {
      case OpKind::forward:
        return p.forward * share;
      case OpKind::backward:
        return p.backward * share;
      case OpKind::input_gradient:
        return p.backward - p.weight;
      case OpKind::weight_gradient:
        return p.weight;
      case OpKind::forward_and_backward:
        break;
    }
    return p.both;
  };
  int32_t next[kMostStages] = {};
  double free[kMostStages]  = {};
  for (bool progress = true; progress;) {
    progress = false;
    for (int32_t stage = 0; stage < p.stages; ++stage)
      for (; next[stage] < count_[stage]; ++next[stage]) {
        PipelineOp& op = op_[stage][next[stage]];
        op.begin       = free[stage];
        if (!ready(stage, op, op.begin)) break;
        op.end = free[stage] = op.begin + time_of(op.kind);
        if (op.end > total_) total_ = op.end;
        if (has_forward(op.kind)) forward_done_[place(stage, op.part)][op.microbatch] = op.end;
        if (op.kind != OpKind::forward && op.kind != OpKind::weight_gradient)
          gradient_done_[place(stage, op.backward_part)][op.backward_microbatch] = op.end;
        progress = true;
      }
  }
}

void PipelineModel::run(const Pipeline& pipeline) {
  pipeline_ = pipeline;
  total_    = 0;
  for (int32_t place = 0; place < kParts; ++place)
    for (int32_t i = 0; i < kMostMicrobatches; ++i)
      forward_done_[place][i] = gradient_done_[place][i] = kNotYet;
  for (int32_t stage = 0; stage < pipeline.stages; ++stage) {
    count_[stage] = 0;
    switch (pipeline.schedule) {
      case Schedule::gpipe:
        for (int32_t i = 0; i < pipeline.microbatches; ++i) append(stage, OpKind::forward, i);
        for (int32_t i = 0; i < pipeline.microbatches; ++i) append(stage, OpKind::backward, i);
        break;
      case Schedule::one_f_one_b:
        order_one_f_one_b(stage);
        break;
      case Schedule::interleaved:
        order_interleaved(stage);
        break;
      case Schedule::zero_bubble:
        order_zero_bubble(stage);
        break;
      case Schedule::dualpipe:
        order_dualpipe(stage);
        break;
    }
  }
  set_times();
}

double PipelineModel::busy(int32_t stage) const {
  double sum = 0;
  for (int32_t i = 0; i < count_[stage]; ++i) sum += op_[stage][i].end - op_[stage][i].begin;
  return sum;
}

double PipelineModel::bubble() const {
  double sum = 0;
  for (int32_t stage = 0; stage < pipeline_.stages; ++stage) sum += busy(stage);
  return total_ > 0 ? 1 - sum / (total_ * pipeline_.stages) : 0;
}

double PipelineModel::held(int32_t stage, double time) const {
  int32_t passes = 0;
  for (int32_t i = 0; i < count_[stage]; ++i) {
    const PipelineOp& op = op_[stage][i];
    passes += has_forward(op.kind) && op.begin <= time;
    passes -= releases(op.kind) && op.end <= time;
  }
  return pipeline_.schedule == Schedule::interleaved ? static_cast<double>(passes) / pipeline_.chunks
                                                     : passes;
}

// It grows at the begin of passes only, and these do not overlap on a stage.
double PipelineModel::most_held(int32_t stage) const {
  int32_t passes = 0, most = 0;
  for (int32_t i = 0; i < count_[stage]; ++i) {
    passes += has_forward(op_[stage][i].kind);
    most = passes > most ? passes : most;
    passes -= releases(op_[stage][i].kind);
  }
  return pipeline_.schedule == Schedule::interleaved ? static_cast<double>(most) / pipeline_.chunks : most;
}

}  // namespace fathom::book
