// out(t, i) = leaky integrator of in(t, i)        T independent tasks of n numbers, fp32
//
// link    4 T n to the device and as many back
// flops   2 T n steps
// limit   fp32 multiply-adds. H200: 32 tasks of 16384 numbers and 16384 steps are 17 GFLOP, 0.29 ms at 60
//         TFLOP/s
// idea    what streams cannot do better where it is possible: the tasks are of one kind, so one kernel
//         takes them all. It fills the GPU; but the copies are before and after it, not beside it
#include "task.cuh"

namespace fathom::lab::concurrent_kernels {

void batched(const Tasks& p, StreamRef stream) { enqueue(p, 0, p.count(), stream); }

}  // namespace fathom::lab::concurrent_kernels
