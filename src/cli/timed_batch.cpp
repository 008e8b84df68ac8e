#include "cli/timed_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/usage_error.h"
#include "core/rng.h"

namespace fathom::cli {
namespace {

using engine::TimePoint;

double seconds(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

}  // namespace

double BatchTimes::ttft_s() const { return seconds(start, begun); }
double BatchTimes::tpot_s() const { return seconds(begun, last) / static_cast<double>(steps); }

BatchTimes time_batch(engine::Engine& engine, const BatchShape& shape, uint64_t seed) {
  const auto B = static_cast<size_t>(shape.batch);
  std::vector<std::vector<TimePoint>> times(B);  // of each sequence's tokens
  std::promise<std::string> all_ended;
  size_t ended = 0;
  std::vector<engine::Request> requests(B);
  for (size_t b = 0; b < B; ++b) {
    engine::Request& request = requests[b];
    request.prompt.resize(static_cast<size_t>(shape.input_len));
    fill_integers(request.prompt.data(), shape.input_len, seed * 1000003 + b, 0,
                  engine.checkpoint().config.vocab_size);
    request.max_tokens    = shape.output_len + 1;
    request.sampling.seed = seed + b;
  }
  BatchTimes run;
  std::string error;
  const auto end = [&](size_t sequences) {
    ended += sequences;
    if (ended == B) all_ended.set_value(error);
  };
  // Submits all prompts from a listener, on the engine's thread: they all arrive before the next step is
  // planned. Submitted from this thread, the first prompts would start before the last had arrived.
  const auto submit_all = [&] {
    run.start = std::chrono::steady_clock::now();
    for (size_t b = 0; b < B; ++b) {
      const auto taken = engine.submit(std::move(requests[b]), [&, b](const engine::RequestOutput& progress) {
        times[b].insert(times[b].end(), progress.tokens.size(), std::chrono::steady_clock::now());
        if (!progress.error.empty()) error = progress.error;
        if (progress.finish) end(1);
      });
      if (const auto* refusal = std::get_if<engine::Refusal>(&taken)) {
        error = refusal->message;
        return end(B - b);
      }
    }
  };
  const auto forerun =
      engine.submit({.prompt = {0}, .max_tokens = 1}, [&](const engine::RequestOutput& progress) {
        if (!progress.finish) return;
        error = progress.error;
        error.empty() ? submit_all() : end(B);
      });
  if (const auto* refusal = std::get_if<engine::Refusal>(&forerun)) throw UsageError(refusal->message);
  if (const std::string failed = all_ended.get_future().get(); !failed.empty()) throw UsageError(failed);

  // From the first token of the last sequence to start until the first one ends, each step yields one token
  // for every sequence.
  const auto last_begun = std::max_element(
      times.begin(), times.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
  run.begun = last_begun->front();
  run.steps = shape.output_len;
  for (const auto& its : times)
    run.steps = std::min(run.steps, its.end() - std::upper_bound(its.begin(), its.end(), run.begun));
  run.last = (*last_begun)[static_cast<size_t>(run.steps)];
  if (run.steps < 1 && shape.output_len > 0)
    throw UsageError(fmt::format(
        "of {} sequences, the first ended before the last began: give more than --output-len {}, or less of "
        "--batch-size",
        shape.batch, shape.output_len));
  return run;
}

}  // namespace fathom::cli
