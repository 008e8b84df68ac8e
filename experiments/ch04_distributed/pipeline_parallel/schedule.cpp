#include "schedule.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "core/expect.h"

namespace fathom::lab::pipeline_parallel {
namespace {

Schedule empty_schedule(int stages, int micro_batches) {
  FATHOM_EXPECT(stages >= 1 && micro_batches >= 1, "a pipeline has at least one stage and one micro-batch");
  return Schedule(static_cast<size_t>(stages));
}

}  // namespace

Schedule gpipe(int stages, int micro_batches) {
  Schedule schedule = empty_schedule(stages, micro_batches);
  for (std::vector<Pass>& passes : schedule) {
    for (int m = 0; m < micro_batches; ++m) passes.push_back({Pass::forward, m});
    for (int m = 0; m < micro_batches; ++m) passes.push_back({Pass::backward, m});
  }
  return schedule;
}

// It is the interleaved schedule of one chunk, except that a stage runs ahead by one for each later stage,
// not by two: nothing comes around to it again.
Schedule one_f_one_b(int stages, int micro_batches) {
  Schedule schedule = empty_schedule(stages, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Pass>& passes = schedule[static_cast<size_t>(stage)];
    const int ahead           = std::min(stages - 1 - stage, micro_batches);
    for (int m = 0; m < ahead; ++m) passes.push_back({Pass::forward, m});
    for (int m = 0; m < micro_batches; ++m) {
      if (ahead + m < micro_batches) passes.push_back({Pass::forward, ahead + m});
      passes.push_back({Pass::backward, m});
    }
  }
  return schedule;
}

// Forward passes go through the chunks in groups of as many micro-batches as there are stages, backward
// passes through the chunks from the last.
Schedule interleaved(int stages, int micro_batches, int chunks) {
  Schedule schedule = empty_schedule(stages, micro_batches);
  FATHOM_EXPECT(chunks >= 1 && micro_batches % stages == 0,
                "an interleaved schedule needs a multiple of the stages as micro-batches");
  const int total     = micro_batches * chunks;
  const auto numbered = [&](Pass::Kind kind, int k) {
    const int group = k / (stages * chunks), within = k % (stages * chunks);
    const int chunk = within / stages;
    return Pass{kind, group * stages + within % stages, kind == Pass::forward ? chunk : chunks - 1 - chunk};
  };
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Pass>& passes = schedule[static_cast<size_t>(stage)];
    const int ahead           = chunks == 1 ? std::min(stages - 1 - stage, total)
                                            : std::min(2 * (stages - 1 - stage) + (chunks - 1) * stages, total);
    for (int k = 0; k < ahead; ++k) passes.push_back(numbered(Pass::forward, k));
    for (int k = 0; k < total; ++k) {
      if (ahead + k < total) passes.push_back(numbered(Pass::forward, ahead + k));
      passes.push_back(numbered(Pass::backward, k));
    }
  }
  return schedule;
}

// 1F1B with the backward pass in two. A stage puts off weights' gradients of as many micro-batches as there
// are stages before it: as many activations are kept as 1F1B keeps on the first stage, on all.
Schedule zero_bubble_h1(int stages, int micro_batches) {
  Schedule schedule = one_f_one_b(stages, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Pass> passes;
    int next = 0;
    for (const Pass& pass : schedule[static_cast<size_t>(stage)]) {
      if (pass.kind == Pass::forward) {
        passes.push_back(pass);
        continue;
      }
      passes.push_back({Pass::input_gradient, pass.micro_batch});
      if (pass.micro_batch >= stage) passes.push_back({Pass::weight_gradient, next++});
    }
    while (next < micro_batches) passes.push_back({Pass::weight_gradient, next++});
    schedule[static_cast<size_t>(stage)] = std::move(passes);
  }
  return schedule;
}

ModelledRun modelled(const Schedule& schedule, const PassTimes& times) {
  const int stages = static_cast<int>(schedule.size());
  int chunks       = 1;
  for (const auto& passes : schedule)
    for (const Pass& pass : passes) chunks = std::max(chunks, pass.chunk + 1);
  const auto length = [&](Pass::Kind kind) {
    const std::array<double, 4> of = {times.forward, times.input_gradient + times.weight_gradient,
                                      times.input_gradient, times.weight_gradient};
    return of[kind] / chunks;
  };

  // When a part of the model was through with a micro-batch. A backward pass counts as the input's gradient.
  std::map<std::tuple<Pass::Kind, int, int>, double> done;
  const auto when = [&](Pass::Kind kind, int micro_batch, int part) -> std::optional<double> {
    const auto found = done.find({kind, micro_batch, part});
    return found == done.end() ? std::nullopt : std::optional(found->second);
  };
  // The moment from which a pass can begin; nothing while it cannot be known.
  const auto ready = [&](const Pass& pass, int part) -> std::optional<double> {
    if (pass.kind == Pass::forward) return part == 0 ? 0.0 : when(Pass::forward, pass.micro_batch, part - 1);
    if (pass.kind == Pass::weight_gradient) return when(Pass::input_gradient, pass.micro_batch, part);
    const auto own = when(Pass::forward, pass.micro_batch, part);
    if (part == stages * chunks - 1 || !own) return own;
    const auto after = when(Pass::input_gradient, pass.micro_batch, part + 1);
    return after ? std::optional(std::max(*own, *after)) : after;
  };

  ModelledRun run{.kept_by = std::vector<int>(schedule.size(), 0)};
  std::vector<size_t> next(schedule.size(), 0);
  std::vector<double> now(schedule.size(), 0), busy(schedule.size(), 0);
  std::vector<int> keeps(schedule.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < schedule.size(); ++s)
      for (; next[s] < schedule[s].size(); ++next[s]) {
        const Pass& pass = schedule[s][next[s]];
        const int part   = pass.chunk * stages + static_cast<int>(s);
        const auto from  = ready(pass, part);
        if (!from) break;
        now[s] = std::max(now[s], *from) + length(pass.kind);
        busy[s] += length(pass.kind);
        done[{pass.kind == Pass::backward ? Pass::input_gradient : pass.kind, pass.micro_batch, part}] =
            now[s];
        if (pass.kind == Pass::forward) run.kept_by[s] = std::max(run.kept_by[s], ++keeps[s]);
        if (pass.kind == Pass::backward || pass.kind == Pass::weight_gradient) --keeps[s];
        moved = true;
      }
  }
  run.complete = true;
  for (size_t s = 0; s < schedule.size(); ++s) {
    run.complete &= next[s] == schedule[s].size();
    run.time = std::max(run.time, now[s]);
    run.kept = std::max(run.kept, run.kept_by[s]);
  }
  run.bubble = run.time - *std::max_element(busy.begin(), busy.end());
  return run;
}

}  // namespace fathom::lab::pipeline_parallel
