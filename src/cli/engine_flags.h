// The flags of an engine: its sizes, and its features one by one, by the names of vLLM where it has them.
#pragma once

#include <CLI/CLI.hpp>

#include "engine/config.h"

namespace fathom::cli {

struct EngineFlags {
  engine::EngineConfig config;
  bool baseline = false;

  // With the features of the baseline where that was asked for.
  engine::EngineConfig chosen() const { return baseline ? config.plain() : config; }
};

void add_engine_flags(CLI::App& verb, EngineFlags& flags);

}  // namespace fathom::cli
