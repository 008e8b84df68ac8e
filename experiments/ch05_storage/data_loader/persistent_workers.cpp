// out(e, k) = step(pixels of the k-th sample)                 samples of 64 KiB, stored compressed in a shard
//
// bytes   the stored sample from the device, 64 KiB of pixels written and read
// limit   the consumer's step, while loading hides behind it; the CPU time of both over the CPUs there are
// idea    threads, decoders and slots outlive an epoch; one slot for each worker
#include "loader.h"

namespace fathom::lab::data_loader {

Launch<Samples> prepare_persistent_workers(const Samples&, Context& context) {
  return [loader = std::make_shared<Loader>(context.pool.threads() - 1, 1)](const Samples& p, Context& on) {
    run_epochs(p, *loader, on.pool);
  };
}

}  // namespace fathom::lab::data_loader
