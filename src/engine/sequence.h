// One request on its way through the engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/block_manager.h"
#include "engine/generator.h"

namespace fathom::engine {

struct Sequence {
  Sequence(RequestId request_id, Request taken, Listener told, TimePoint now)
      : id(request_id), request(std::move(taken)), listener(std::move(told)), tokens(request.prompt) {
    times.received = now;
  }

  const RequestId id;
  const Request request;
  const Listener listener;

  // Prompt, and what has been answered so far.
  std::vector<model::TokenId> tokens;
  SequencePages pages;
  int64_t computed     = 0;      // positions whose keys and values are there, and final
  int64_t scheduled    = 0;      // positions in steps so far, those of a step in flight among them
  int64_t pending      = 0;      // tokens that steps, in flight or planned, will yield
  bool running         = false;  // else waiting
  bool cancelled       = false;
  int64_t admissions   = 0;  // times it began to run; each begins anew
  int64_t draft_tokens = 0;  // of its next draft, at most

  int64_t cached_tokens = 0;  // of its first admission
  int64_t drafted = 0, accepted = 0;
  RequestTimes times;

  int64_t prompt_tokens() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t known() const { return static_cast<int64_t>(tokens.size()); }
  int64_t answered() const { return known() - prompt_tokens(); }
  std::span<const model::TokenId> answer() const { return std::span(tokens).subspan(request.prompt.size()); }
  // Rows that could be in the next step. Guesses are scheduled beyond what will be known.
  int64_t unscheduled() const {
    if (answered() + pending >= request.max_tokens) return 0;
    return std::max<int64_t>(known() + pending - scheduled, 0);
  }
  // Of two waiting or running ones, who goes first.
  bool before(const Sequence& other) const {
    return std::pair(request.priority, id) < std::pair(other.request.priority, other.id);
  }
};

}  // namespace fathom::engine
