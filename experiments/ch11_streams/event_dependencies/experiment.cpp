// Work that fans out and joins has few true dependencies. A host that waits for the whole device adds one
// from everything to everything, and a gap in which the GPU has nothing to do.
#include "lab/experiment.h"

#include <cmath>

#include "branches.h"
#include "experiments/ch11_streams/leaky_integrator.h"

namespace fathom::lab::event_dependencies {

Branches::Branches(const Point& at, Arena& arena)
    : steps(at["steps"]),
      in(arena.input<float>({kBranches, at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"]})),
      after_stage(arena.workspace<float>({kStages, kBranches, at["n"]})) {
  FATHOM_EXPECT(4 * steps <= INT32_MAX, "the kernel counts steps in 32 bits");
}

Cost Branches::cost() const {
  return {.read    = in.bytes(),
          .written = out.bytes(),
          .flops   = leaky_integrator::flops(in.size(), (kStages - 1) * steps + 4 * steps)};
}

Sum Branches::expected(int64_t i) const {
  Sum sum{.length = kStages * leaky_integrator::kRoundings + kBranches};
  for (int64_t b = 0; b < kBranches; ++b) {
    double v = in(b, i);
    for (int64_t s = 0; s < kStages; ++s) v *= leaky_integrator::gain(steps_of(b, s));
    sum.value += v;
    sum.magnitude += std::abs(v);
  }
  return sum;
}

namespace {

// All declare .syncs: the host's waits and launches are the subject.
const Experiment<Branches> branches{
    .question = "What does it cost to wait for the whole device where events could order only what depends?",
    .limit    = Limit::none,
    .axes     = {{"n", {16384}}, {"steps", {4096}}},
    .check_at = {{"n", {0, 1, 255, 257, 1023, 1025, 4099}}, {"steps", {1, 3, 40}}},
    .variants =
        {
            {.id         = "device_sync",
             .techniques = {"streams"},
             .idea       = "cudaDeviceSynchronize between stages",
             .prediction = predict::nothing(),
             .prepare    = prepared_on_gpu(device_sync),
             .syncs      = true},
            {.id         = "stage_events",
             .techniques = {"streams", "events"},
             .idea       = "all branches wait for all by events; the host waits for nothing",
             .prediction = predict::ratio(1.15),
             .prepare    = prepared_on_gpu(stage_events),
             .syncs      = true},
            {.id         = "branch_events",
             .techniques = {"streams", "events"},
             .idea       = "events at the fan-out and the join only",
             .prediction = predict::ratio_at_least(2.2),
             .prepare    = prepared_on_gpu(branch_events),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .catalog = {"streams-002"},
};
FATHOM_REGISTER(branches);

}  // namespace
}  // namespace fathom::lab::event_dependencies
