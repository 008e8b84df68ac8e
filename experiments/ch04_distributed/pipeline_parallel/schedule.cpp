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

// DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, §3.2.1. Eight phases; F0 is a forward pass of a
// micro-batch from the nearer end, B1 a backward pass of one from the farther, W postponed gradients of
// weights.
Schedule dualpipe(int stages, int micro_batches) {
  Schedule schedule = empty_schedule(stages, micro_batches);
  FATHOM_EXPECT(
      stages % 2 == 0 && micro_batches % 2 == 0 && micro_batches >= 2 * stages,
      "DualPipe needs an even number of stages, and an even number of micro-batches of at least two for "
      "each stage");
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Pass>& passes = schedule[static_cast<size_t>(stage)];
    const int to_end          = std::min(stage, stages - 1 - stage);
    const int to_middle       = stages / 2 - 1 - to_end;
    const int near            = stage < stages / 2 ? 0 : 1;
    std::array<int, 2> forwards{}, backwards{};  // [0]: from the nearer end
    std::vector<Pass> postponed;
    const auto chunk = [&](int from) { return from == 0 ? near : 1 - near; };
    const auto F     = [&](int from) {
      passes.push_back({Pass::forward, forwards[static_cast<size_t>(from)]++, chunk(from)});
    };
    const auto B = [&](int from, bool postpone) {
      const int m = backwards[static_cast<size_t>(from)]++;
      passes.push_back({postpone ? Pass::input_gradient : Pass::backward, m, chunk(from)});
      if (postpone) postponed.push_back({Pass::weight_gradient, m, chunk(from)});
    };
    const auto W = [&] {
      passes.push_back(postponed.front());
      postponed.erase(postponed.begin());
    };
    const auto FB = [&](int forward, int backward) {
      passes.push_back({Pass::forward_and_backward, forwards[static_cast<size_t>(forward)]++, chunk(forward),
                        backwards[static_cast<size_t>(backward)]++, chunk(backward)});
    };
    for (int i = 0; i < 2 * to_middle; ++i) F(0);
    for (int i = 0; i <= to_end; ++i) {
      F(0);
      F(1);
    }
    for (int i = 0; i < to_middle; ++i) {
      B(1, true);
      W();
      F(1);
    }
    const int rounds = micro_batches / 2 - stages + to_end + 1;
    for (int i = 0; i < rounds; ++i) {
      if (i == 0 && to_middle == 0) {  // the first gradient comes right after this forward pass
        F(0);
        B(1, false);
      } else {
        FB(0, 1);
      }
      FB(1, 0);
    }
    for (int i = 0; i < to_middle; ++i) {
      B(1, false);
      FB(1, 0);
    }
    // The later half postpones: what the last stages wait for goes out first.
    for (int i = 0; i < 2 * (to_end + 1); ++i) B(1 - i % 2, i > to_end);
    for (int i = 0; i < to_middle; ++i) {
      W();
      B(0, true);
    }
    while (!postponed.empty()) W();
  }
  return schedule;
}

ModelledRun modelled(const Schedule& schedule, const PassTimes& times, Parts parts) {
  const int stages = static_cast<int>(schedule.size());
  int chunks       = 1;
  for (const auto& passes : schedule)
    for (const Pass& pass : passes) chunks = std::max({chunks, pass.chunk + 1, pass.backward_chunk + 1});
  const bool copies = parts == Parts::both_ways;  // each chunk a whole stage
  const auto length = [&](Pass::Kind kind) {
    const std::array<double, 5> of = {times.forward, times.input_gradient + times.weight_gradient,
                                      times.input_gradient, times.weight_gradient,
                                      times.forward_and_backward};
    return copies ? of[kind] : of[kind] / chunks;
  };
  const auto part_of = [&](int chunk, int stage) {
    return chunk * stages + (copies && chunk == 1 ? stages - 1 - stage : stage);
  };
  const auto begins_a_copy = [&](int part) { return copies ? part % stages == 0 : part == 0; };
  const auto ends_a_copy   = [&](int part) {
    return copies ? part % stages == stages - 1 : part == stages * chunks - 1;
  };

  // When a part of the model was through with a micro-batch. A backward pass counts as the input's gradient.
  std::map<std::tuple<Pass::Kind, int, int>, double> done;
  using Moment    = std::optional<double>;
  const auto when = [&](Pass::Kind kind, int micro_batch, int part) -> Moment {
    const auto found = done.find({kind, micro_batch, part});
    return found == done.end() ? std::nullopt : Moment(found->second);
  };
  const auto later = [](Moment a, Moment b) { return a && b ? Moment(std::max(*a, *b)) : std::nullopt; };
  // The moment from which a pass can begin; nothing while it cannot be known.
  const auto forward_ready = [&](int micro_batch, int part) {
    return begins_a_copy(part) ? Moment(0.0) : when(Pass::forward, micro_batch, part - 1);
  };
  const auto backward_ready = [&](int micro_batch, int part) {
    const Moment own = when(Pass::forward, micro_batch, part);
    return ends_a_copy(part) ? own : later(own, when(Pass::input_gradient, micro_batch, part + 1));
  };
  const auto ready = [&](const Pass& pass, int part, int backward_part) {
    switch (pass.kind) {
      case Pass::forward:
        return forward_ready(pass.micro_batch, part);
      case Pass::weight_gradient:
        return when(Pass::input_gradient, pass.micro_batch, part);
      case Pass::forward_and_backward:
        return later(forward_ready(pass.micro_batch, part),
                     backward_ready(pass.backward_micro_batch, backward_part));
      default:
        return backward_ready(pass.micro_batch, part);
    }
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
        const int stage  = static_cast<int>(s);
        const int part = part_of(pass.chunk, stage), backward_part = part_of(pass.backward_chunk, stage);
        const auto from = ready(pass, part, backward_part);
        if (!from) break;
        now[s] = std::max(now[s], *from) + length(pass.kind);
        busy[s] += length(pass.kind);
        const bool both = pass.kind == Pass::forward_and_backward;
        if (both || pass.kind == Pass::forward) {
          done[{Pass::forward, pass.micro_batch, part}] = now[s];
          run.kept_by[s]                                = std::max(run.kept_by[s], ++keeps[s]);
        }
        if (both) done[{Pass::input_gradient, pass.backward_micro_batch, backward_part}] = now[s];
        if (pass.kind == Pass::backward || pass.kind == Pass::input_gradient)
          done[{Pass::input_gradient, pass.micro_batch, part}] = now[s];
        if (both || pass.kind == Pass::backward || pass.kind == Pass::weight_gradient) --keeps[s];
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
