// A kernel of 16 CTAs leaves 116 of 132 multiprocessors idle, and a copy all of them. Work in one stream runs
// in order, so the GPU may not start the next task. In several streams it may.
#include "lab/experiment.h"

#include <cmath>

#include "experiments/ch11_streams/leaky_integrator.h"
#include "tasks.h"

namespace fathom::lab::concurrent_kernels {

Tasks::Tasks(const Point& at, Arena& arena)
    : steps(at["steps"]),
      in(arena.input<float>({at["tasks"], at["n"]}, Uniform{-1, 1}, Pages::huge, Place::pinned)),
      out(arena.output<float>({at["tasks"], at["n"]}, Pages::huge, Place::pinned)),
      device_in(arena.workspace<float>({at["tasks"], at["n"]})),
      device_out(arena.workspace<float>({at["tasks"], at["n"]})) {
  FATHOM_EXPECT(steps <= INT32_MAX, "the kernel counts steps in 32 bits");
}

Cost Tasks::cost() const {
  return {.read    = in.bytes(),
          .written = out.bytes(),
          .flops   = leaky_integrator::flops(in.size(), steps),
          .link    = in.bytes()};
}

Sum Tasks::expected(int64_t task, int64_t i) const {
  const double y = in(task, i) * leaky_integrator::gain(steps);
  return {.value = y, .magnitude = std::abs(y), .length = leaky_integrator::kRoundings};
}

namespace {

const Experiment<Tasks> tasks{
    .question = "What do several streams gain for independent tasks, each too small to fill the GPU?",
    .limit    = Limit::flops,
    .axes     = {{"tasks", {32}}, {"n", {16384}}, {"steps", {16384}}},
    .check_at = {{"tasks", {1, 17, 33}}, {"n", {0, 1, 1023, 1024, 1025, 4099}}, {"steps", {0, 1, 40}}},
    .variants =
        {
            {.id         = "one_stream",
             .launch     = on_gpu(one_stream),
             .techniques = {},
             .idea       = "copy in, kernel, copy out, task after task",
             .prediction = predict::nothing()},
            {.id         = "streams_2",
             .techniques = {"streams", "events", "copy_compute_overlap"},
             .idea       = "the tasks in two streams in turn",
             .prediction = predict::ratio(2),
             .prepare    = prepared_on_gpu(streams_2)},
            {.id         = "streams_4",
             .techniques = {"streams", "events", "copy_compute_overlap"},
             .idea       = "in four",
             .prediction = predict::ratio(3.9),
             .prepare    = prepared_on_gpu(streams_4)},
            {.id         = "streams_8",
             .techniques = {"streams", "events", "copy_compute_overlap"},
             .idea       = "in eight: 128 CTAs for 132 multiprocessors",
             .prediction = predict::ratio(7.4),
             .prepare    = prepared_on_gpu(streams_8)},
            {.id         = "streams_16",
             .techniques = {"streams", "events", "copy_compute_overlap"},
             .idea       = "in sixteen: two CTAs a multiprocessor",
             .prediction = predict::ratio_at_least(7.4),
             .prepare    = prepared_on_gpu(streams_16)},
            {.id         = "batched",
             .launch     = on_gpu(batched),
             .techniques = {"batching"},
             .idea       = "one copy in, one kernel, one copy out for all tasks",
             .prediction = predict::ratio(7)},
        },
    .backend = Backend::cuda,
    .catalog = {"streams-001"},
};
FATHOM_REGISTER(tasks);

}  // namespace
}  // namespace fathom::lab::concurrent_kernels
