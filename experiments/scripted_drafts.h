// A drafter of a known rate of acceptance: it drafts an answer that was recorded, each token spoilt with a
// given probability. The target verifies its drafts like any others, so a step costs what it costs with a
// trained drafter of that rate, less the drafter's own forward pass. It works with random weights too.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/config.h"
#include "engine/model_runner.h"
#include "engine/proposer.h"
#include "model/checkpoint.h"

namespace fathom::lab::scripted_drafts {

struct Script {
  int64_t length = 0;  // tokens of a draft
  double accept  = 0;  // probability that a token is right if those before it are
  uint64_t seed  = 0;  // of what is spoilt
  int64_t vocab  = 1;  // ids are below it
  // By prompt. Where an answer is missing or has ended, drafts are token 0.
  std::map<std::vector<model::TokenId>, std::vector<model::TokenId>> answers = {};
};

class ScriptedProposer final : public engine::Proposer {
 public:
  // Only while the engine has no request.
  void play(Script script) { script_ = std::move(script), seconds_ = 0; }
  // The same prompt and place give the same token.
  engine::Draft propose(const engine::Sequence& sequence, int64_t count) override;
  double seconds() const { return seconds_; }  // spent in propose() since play()

 private:
  Script script_;
  double seconds_ = 0;
};

// The engine's runner on the CPU or the GPU of `config`, with the drafts of `proposer`, which must outlive
// it. The engine's configuration needs draft_tokens >= Script::length and DraftMethod::suffix: lengths stay
// fixed.
std::unique_ptr<engine::ModelRunner> runner_with(engine::Proposer& proposer,
                                                 std::unique_ptr<engine::ModelRunner> runner);

}  // namespace fathom::lab::scripted_drafts
