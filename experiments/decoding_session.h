// One batch of prompts of random tokens, submitted at once to an engine and decoded greedily; and engines on
// a GPU with a model of gpt-oss-20b's shape and random weights, whose answers mean nothing and whose steps
// cost what the real model's do.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "lab/metric.h"
#include "model/checkpoint.h"

namespace fathom::lab::decoding_session {

struct Decoding {
  int64_t sequences = 1, prompt_tokens = 1, tokens = 1;
  uint64_t seed = 0;
};
std::vector<std::vector<model::TokenId>> prompts_of(const Decoding& asked, int64_t vocab);

// A window of steps that each had a row, or a draft's rows, for every sequence: from the first tokens on, to
// the step in which a sequence has `tokens` tokens.
struct Decoded {
  std::vector<std::vector<model::TokenId>> answers;  // up to the window's end
  int64_t steps = 0, tokens = 0;                     // in the window, of all sequences
  double seconds      = 0;
  double scheduling_s = 0,
         forward_s    = 0;  // of these: the host plans and drafts; the device has a step's work

  double token_ns() const { return seconds * 1e9 / static_cast<double>(tokens); }
  double step_ns() const { return seconds * 1e9 / static_cast<double>(steps); }
};
// Answers go some tokens beyond the window. All prompts must fit in one step of the engine, and so must all
// sequences. Throws where a request fails.
Decoded decode(engine::Engine& engine, const Decoding& asked);
// step_ns, tokens_per_step (of a sequence), scheduling_share and forward_share of the window.
std::map<std::string, Metric> metrics_of(const Decoded& seen, int64_t sequences);

// The model of that shape with so many layers that $XDG_CACHE_HOME/fathom/models/gpt-oss-20b-<layers>-layers
// (~/.cache where it is unset) holds; opened once. Throws Unavailable: needs_cuda, or needs_model with the
// command that makes it.
const model::Checkpoint& shaped_model(int64_t layers);
// For up to eight sequences, drafts not among their features.
engine::EngineConfig shaped_engine(const Decoding& largest);

}  // namespace fathom::lab::decoding_session
