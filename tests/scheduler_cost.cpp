// Scheduler steps at full load, without a model: 256 sequences decode, and each step is planned while the
// previous one is in flight. Prints the time of a step; tests/scheduler_cost_test.py counts its instructions.
//   scheduler_cost STEPS
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "engine/scheduler.h"

namespace {

using namespace fathom::engine;

constexpr int64_t kSequences = 256;

void commit(Scheduler& scheduler, const SchedulerOutput& step) {
  const fathom::model::TokenId token[] = {1};
  for (const ScheduledSequence& scheduled : step.sequences)
    scheduler.commit(scheduled, 0, std::span(token).first(scheduled.samples ? 1 : 0));
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1000;
  const EngineConfig config{.max_context = 4096, .max_sequences = kSequences, .step_tokens = 1024};
  BlockManager blocks({.pages = {32768, 8192}, .page_size = config.page_size, .window = 128});
  Scheduler scheduler(config, blocks);
  for (int64_t s = 0; s < kSequences; ++s) {
    Request request{.max_tokens = 3000};
    for (int64_t t = 0; t < 1000; ++t)
      request.prompt.push_back(static_cast<fathom::model::TokenId>((t * 7 + s) % 200));
    scheduler.add(std::make_unique<Sequence>(static_cast<RequestId>(s + 1), std::move(request), Listener(),
                                             TimePoint()));
  }
  SchedulerOutput in_flight = scheduler.schedule();
  while (in_flight.sequences.size() < kSequences || in_flight.rows() > kSequences) {  // prompts
    commit(scheduler, in_flight);
    in_flight = scheduler.schedule();
  }
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    SchedulerOutput next = scheduler.schedule();
    commit(scheduler, in_flight);
    in_flight = std::move(next);
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  fmt::print("{:.2f} us a step with {} sequences running\n", took.count() / steps, scheduler.running());
}
