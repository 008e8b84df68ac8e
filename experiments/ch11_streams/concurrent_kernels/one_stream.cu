// out(t, i) = leaky integrator of in(t, i)        T independent tasks of n numbers, fp32
//
// link    4 T n to the device and as many back
// flops   2 T n steps
// limit   fp32 multiply-adds. H200: 32 tasks of 16384 numbers and 16384 steps are 17 GFLOP, 0.29 ms at 60
//         TFLOP/s
// idea    none yet: everything in one stream. A kernel has 16 CTAs for 132 multiprocessors, and a copy
//         never runs beside one
#include "task.cuh"

namespace fathom::lab::concurrent_kernels {

void one_stream(const Tasks& p, StreamRef stream) {
  for (int64_t task = 0; task < p.count(); ++task) enqueue(p, task, 1, stream);
}

}  // namespace fathom::lab::concurrent_kernels
