// out(e, k) = step(pixels of the k-th sample)                 samples of 64 KiB, stored compressed in a shard
//
// bytes   the stored sample from the device, 64 KiB of pixels written and read
// limit   the time of loading added to that of the step
// idea    baseline: load a sample, make a step, load the next
#include "loader.h"

namespace fathom::lab::data_loader {

Launch<Samples> prepare_in_line(const Samples&, Context&) {
  return [loader = std::make_shared<Loader>(1, 1)](const Samples& p, Context&) {
    const int64_t begin = nanoseconds_now();
    p.spent(0)          = 0;
    for (int64_t epoch = 0; epoch < p.out.extent(0); ++epoch)
      for (int64_t k = 0; k < p.order.extent(0); ++k) {
        const int64_t asked = nanoseconds_now();
        load(p, p.order(k), loader->decoders[0].get(), loader->slots[0]);
        p.spent(0) += nanoseconds_now() - asked;
        p.out(epoch, k) = step(loader->slots[0].pixels);
      }
    p.spent(1) = nanoseconds_now() - begin;
  };
}

}  // namespace fathom::lab::data_loader
