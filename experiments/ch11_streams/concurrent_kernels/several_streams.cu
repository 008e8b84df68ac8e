// out(t, i) = leaky integrator of in(t, i)        T independent tasks of n numbers, fp32
//
// link    4 T n to the device and as many back
// flops   2 T n steps
// limit   fp32 multiply-adds. H200: 32 tasks of 16384 numbers and 16384 steps are 17 GFLOP, 0.29 ms at 60
//         TFLOP/s
// idea    tasks go to several streams in turn. The GPU takes work from all of them: kernels share the
//         multiprocessors, and the copies of some tasks run beside the kernels of others
#include <memory>

#include "experiments/ch11_streams/side_streams.h"
#include "task.cuh"

namespace fathom::lab::concurrent_kernels {
namespace {

Call in_turn(int count) {
  return [streams = std::make_shared<const SideStreams>(count)](const Tasks& p, StreamRef stream) {
    streams->fork(stream);
    for (int64_t task = 0; task < p.count(); ++task) enqueue(p, task, 1, (*streams)[task % streams->size()]);
    streams->join(stream);
  };
}

}  // namespace

Call streams_2(const Tasks&, StreamRef) { return in_turn(2); }
Call streams_4(const Tasks&, StreamRef) { return in_turn(4); }
Call streams_8(const Tasks&, StreamRef) { return in_turn(8); }
Call streams_16(const Tasks&, StreamRef) { return in_turn(16); }

}  // namespace fathom::lab::concurrent_kernels
