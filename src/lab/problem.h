// What the header of a problem and the files of its variants need from the lab. The declaration of an
// experiment needs lab/experiment.h too.
//
//   struct Transpose {                                  // the problem: its memory, cost and reference
//     View<const float, 2> in;
//     View<float, 2> out;
//     Transpose(const Point& at, Arena& arena)
//         : in(arena.input<float>({at["n"], at["n"]}, Uniform{-1, 1})),
//           out(arena.output<float>({at["n"], at["n"]})) {}
//     Cost cost() const { return {.read = in.bytes(), .written = out.bytes()}; }
//     double expected(int64_t i, int64_t j) const { return in(j, i); }
//   };
//   void padded(const Transpose&, Context&);            // a variant only launches; one file each
//
// The harness builds several problems of each point (the input sets), fills them from fresh seeds, and calls
// variants on them in turn. A problem with one output names it `out` and gives `expected(i, j, ...)`; one
// with several outputs gives `void check(Checker&) const` instead (lab/check.h). Problems of several ranks
// are described in lab/rank.h.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "core/dtype.h"
#include "cuda/stream.h"
#include "lab/arena.h"
#include "lab/check.h"
#include "lab/point.h"

namespace fathom {
class ThreadPool;
}

namespace fathom::lab {

class Rank;

// Thrown by a problem's constructor, or by prepare(), where this machine cannot do the work at all. Becomes a
// typed skip.
class Unavailable : public std::runtime_error {
 public:
  // `reason`: needs_feature, needs_permission, ... (Skip in lab/record.h)
  Unavailable(std::string reason, const std::string& need)
      : std::runtime_error(need), reason_(std::move(reason)) {}
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

// Thrown by a call that a process of its own makes and that does not end in time.
class TimedOut : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The work of one call, the same for all variants: the least it must move and compute. Bytes are those that
// must cross from the level that holds the working set; a line read for one useful word counts as the word.
struct Cost {
  int64_t read      = 0;  // bytes
  int64_t written   = 0;  // bytes
  double flops      = 0;
  DType flop_type   = DType::fp32;
  int64_t loads     = 0;  // dependent loads, for Limit::load_latency
  int64_t disk_read = 0;  // bytes from storage or the page cache
  int64_t link      = 0;  // bytes across the link between host and GPU
  int64_t shared    = 0;  // bytes through a GPU's shared memory
  // Bytes that a call touches, where that is neither all the arena holds nor what the call must move.
  int64_t working_set = 0;
};

// What a launcher gets beside the problem.
struct Context {
  StreamRef stream = nullptr;  // the harness's, on the GPU that the problem's memory is on
  ThreadPool& pool;            // as many workers as the variant declares threads
  const Rank* rank = nullptr;  // of an experiment with ranks
};

template <class P>
using Launch = std::function<void(const P&, Context&)>;

}  // namespace fathom::lab
