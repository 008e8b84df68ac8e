// GPU variants that each cheat in one way. tests/adversarial/adversarial_test.cpp names the defence that must
// catch each.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}

namespace fathom::lab {

class Point;
struct Cost;

// out(i) = in(i)^2, long enough that unfinished work is detected.
struct Squares {
  View<const float, 1> in;
  View<float, 1> out;

  Squares(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void gpu_honest(const Squares& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void other_stream(const Squares& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void unfinished_at_end(const Squares& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fewer_graph_nodes(const Squares& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void memo_on_device(const Squares& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void never_written(const Squares& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void persistence_left_on(const Squares& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void waits_undeclared(const Squares& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void loses_the_device(const Squares& p, StreamRef stream);

// Registers "cheats/gpu_<name>" for each cheat, beside gpu_honest, and "deaths/loses_the_device".
void register_gpu_cheats();

}  // namespace fathom::lab
