#include "experiments/scripted_drafts.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/rng.h"

namespace fathom::lab::scripted_drafts {
namespace {

using Clock = std::chrono::steady_clock;

// Uniform in (0, 1), of a token of an answer.
double uniform(uint64_t seed, uint32_t prompt, int64_t place) {
  const auto words = philox({static_cast<uint32_t>(place), prompt, 0, 0},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (static_cast<double>(words[0]) + 0.5) * 0x1p-32;
}

// Forwards everything but the proposer.
class DraftedRunner final : public engine::ModelRunner {
 public:
  DraftedRunner(engine::Proposer& proposer, std::unique_ptr<engine::ModelRunner> runner)
      : proposer_(proposer), runner_(std::move(runner)) {}

  bool can_overlap(const engine::SchedulerOutput& step) const override { return runner_->can_overlap(step); }
  void execute_model(const engine::SchedulerOutput& step) override { runner_->execute_model(step); }
  std::vector<engine::SequenceOutput> get_output(const engine::SchedulerOutput& step) override {
    return runner_->get_output(step);
  }
  engine::Proposer* proposer() override { return &proposer_; }
  std::string device_name() const override { return runner_->device_name(); }
  int threads() const override { return runner_->threads(); }
  engine::MemoryUse memory() const override { return runner_->memory(); }
  View<const int64_t, 2> expert_load() const override { return runner_->expert_load(); }
  double forward_s() const override { return runner_->forward_s(); }
  double sample_s() const override { return runner_->sample_s(); }
  int64_t graphs() const override { return runner_->graphs(); }
  int64_t graph_fallbacks() const override { return runner_->graph_fallbacks(); }

 private:
  engine::Proposer& proposer_;
  const std::unique_ptr<engine::ModelRunner> runner_;
};

}  // namespace

engine::Draft ScriptedProposer::propose(const engine::Sequence& sequence, int64_t count) {
  const auto start = Clock::now();
  engine::Draft draft;
  const auto found    = script_.answers.find(sequence.request.prompt);
  const bool recorded = found != script_.answers.end();
  const auto prompt   = static_cast<uint32_t>(sequence.request.prompt.back());
  for (int64_t i = 0; i < std::min(count, script_.length); ++i) {
    const int64_t place = sequence.num_output_tokens() + i;
    model::TokenId id   = 0;
    if (recorded && place < std::ssize(found->second)) {
      id = found->second[static_cast<size_t>(place)];
      if (uniform(script_.seed, prompt, place) >= script_.accept)
        id = static_cast<model::TokenId>((id + 1) % script_.vocab);
    }
    draft.add(id, script_.accept);
  }
  seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return draft;
}

std::unique_ptr<engine::ModelRunner> runner_with(engine::Proposer& proposer,
                                                 std::unique_ptr<engine::ModelRunner> runner) {
  return std::make_unique<DraftedRunner>(proposer, std::move(runner));
}

}  // namespace fathom::lab::scripted_drafts
