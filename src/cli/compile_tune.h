// fathom compile tune and cache: autotuning of a program, and the files that keep what it found.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/graph.h"

namespace fathom::cli {

// The graph in canonical form. threads: 0 for all.
void tune_program(const compile::Graph& graph, const std::vector<int64_t>& symbols, int threads,
                  double seconds);
void show_tune_cache();
void clear_tune_cache();

}  // namespace fathom::cli
