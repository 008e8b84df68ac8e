// Breadth-first search from vertex 0 in a directed graph whose vertices have kDegree edges each: the level of
// a vertex is its distance. How many vertices the next level has, only the GPU knows.
//
// Graphs of up to kRing vertices are rings, in which a vertex sees the next kDegree, and are not reached
// whole in kMaxLevels levels; larger ones are random.
#pragma once

#include <cstdint>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::dynamic_parallelism {

inline constexpr int kDegree          = 8;
inline constexpr int64_t kRing        = 512;
inline constexpr uint32_t kUnreached  = 0xFFFFFFFF;
inline constexpr int64_t kMaxVertices = 1 << 28;
// The search ends here. Each level may be a launch inside the one before, and those may be 24 deep.
inline constexpr int kMaxLevels = 16;

struct Search {
  View<const uint32_t, 2> neighbours;  // vertices x kDegree
  View<uint32_t, 1> level;             // output, of each vertex
  View<uint32_t, 2> frontier;          // workspace, 2 x vertices: those of even levels, and of odd ones
  View<uint32_t, 1> size;              // workspace, kMaxLevels + 1: vertices of each level
  View<uint32_t, 1> finished;          // workspace, kMaxLevels: blocks that are done with a level
  View<uint32_t, 1> on_host;           // workspace, page-locked: the size of a level

  Search(const Point& at, Arena& arena);
  FATHOM_HD int64_t vertices() const { return level.size(); }
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void host_decides(const Search& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fixed_grid(const Search& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void planner(const Search& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tail_launch(const Search& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void persistent(const Search& p, StreamRef stream);

}  // namespace fathom::lab::dynamic_parallelism
