// One request inside the engine.
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
  Sequence(RequestId request_id, Request asked, Listener told, TimePoint now)
      : id(request_id), request(std::move(asked)), listener(std::move(told)), tokens(request.prompt) {
    times.received = now;
    tokens.insert(tokens.end(), request.resumed.begin(), request.resumed.end());
  }

  const RequestId id;
  const Request request;
  const Listener listener;

  std::vector<model::TokenId> tokens;  // prompt and output so far
  SequencePages pages;
  int64_t num_computed_tokens     = 0;      // positions whose keys and values are in the cache and final
  int64_t num_scheduled_tokens    = 0;      // the same, and those of steps planned or in flight
  int64_t num_output_placeholders = 0;      // tokens that steps planned or in flight will yield
  bool running                    = false;  // else waiting
  int64_t admissions              = 0;      // times it went from waiting to running
  int64_t draft_tokens            = 0;      // length of its next draft, at most

  int64_t cached_tokens      = 0;  // prefix cache hits of its first admission
  int64_t reported_kv_blocks = 0;  // of its prompt, to Request::on_kv_block
  int64_t drafted = 0, accepted = 0;
  RequestTimes times;

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_prompt_tokens() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t num_output_tokens() const { return num_tokens() - num_prompt_tokens(); }
  std::span<const model::TokenId> output() const { return std::span(tokens).subspan(request.prompt.size()); }
  // Tokens that the next step could compute. Drafts are scheduled beyond the tokens counted here, so the
  // difference may be negative.
  int64_t num_unscheduled_tokens() const {
    if (num_output_tokens() + num_output_placeholders >= request.max_tokens) return 0;
    return std::max<int64_t>(num_tokens() + num_output_placeholders - num_scheduled_tokens, 0);
  }
  // Scheduling order: by priority, then by arrival.
  SchedulingOrder order() const { return {request.priority, id}; }
  bool before(const Sequence& other) const { return order() < other.order(); }
};

}  // namespace fathom::engine
