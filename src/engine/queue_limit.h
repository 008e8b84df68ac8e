// How many requests may wait for their prompts.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "engine/config.h"
#include "engine/generator.h"

namespace fathom::engine {

// The refusal where so many waiting requests, with so many prompt tokens, leave no room for `tokens` more.
// Whoever holds requests back in front of the engine counts them, too: one that finds a full queue later can
// only end with an error.
inline std::optional<Refusal> full_queue(const EngineConfig& config, int64_t waiting, int64_t waiting_tokens,
                                         int64_t tokens) {
  if (waiting < config.max_queued_requests && waiting_tokens + tokens <= config.max_queued_tokens) return {};
  return Refusal{Refusal::Reason::queue_full,
                 fmt::format("{} requests with {} prompt tokens are waiting already: try again later",
                             waiting, waiting_tokens)};
}

}  // namespace fathom::engine
