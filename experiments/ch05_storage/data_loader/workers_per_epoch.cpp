// out(e, k) = step(pixels of the k-th sample)                 samples of 64 KiB, stored compressed in a shard
//
// bytes   the stored sample from the device, 64 KiB of pixels written and read
// limit   the consumer's step, while loading hides behind it; the CPU time of both over the CPUs there are
// idea    threads load while the consumer works; threads, decoders and slots are made for each epoch, one
//         slot for each worker
#include "core/cpus.h"
#include "loader.h"

namespace fathom::lab::data_loader {
namespace {

// Before the harness pins its threads.
const std::vector<int> all_cpus = allowed_cpus();

}  // namespace

void workers_per_epoch(const Samples& p, Context& context) {
  const int threads   = context.pool.threads();
  const int64_t begin = nanoseconds_now();
  p.spent(0)          = 0;
  for (int64_t epoch = 0; epoch < p.out.extent(0); ++epoch) {
    ThreadPool pool({.threads = threads, .cpus = all_cpus});  // as the harness pins its own
    Loader loader(threads - 1, 1);
    p.spent(0) += run_epoch(p, epoch, loader, pool);
  }
  p.spent(1) = nanoseconds_now() - begin;
}

}  // namespace fathom::lab::data_loader
