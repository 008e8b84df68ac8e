// out = the text of all frames                 independent frames of 128 KiB, zstd or lz4
//
// bytes   the compressed bytes read, the text written
// flops   0
// limit   memory bandwidth
// idea    frames are independent, so that any thread can decode any of them: each takes an equal run, with
//         its own context
#include <memory>
#include <vector>

#include "core/thread_pool.h"
#include "frames.h"

namespace fathom::lab::parallel_decompression {

Launch<Frames> prepare_all_threads(const Frames&, Context& context) {
  auto decoders = std::make_shared<std::vector<Decoder>>();
  for (int worker = 0; worker < context.pool.threads(); ++worker) decoders->push_back(make_decoder());
  return [decoders](const Frames& p, Context& on) {
    const int64_t threads = on.pool.threads();
    on.pool.run([&](int worker) {
      ZSTD_DCtx* decoder = (*decoders)[static_cast<size_t>(worker)].get();
      const int64_t last = p.count * (worker + 1) / threads;
      for (int64_t f = p.count * worker / threads; f < last; ++f) decode_frame(p, f, decoder);
    });
  };
}

}  // namespace fathom::lab::parallel_decompression
