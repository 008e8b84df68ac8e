// out = the text of all frames                 independent frames of 128 KiB, zstd or lz4
//
// bytes   the compressed bytes read, the text written
// flops   0
// limit   memory bandwidth; far from reached, since a decoder follows one chain of branches and short copies
// idea    baseline: one frame after the other, with a context that is kept
#include <memory>

#include "frames.h"

namespace fathom::lab::parallel_decompression {

Launch<Frames> prepare_one_thread(const Frames&, Context&) {
  return [decoder = std::make_shared<Decoder>(make_decoder())](const Frames& p, Context&) {
    for (int64_t f = 0; f < p.count; ++f) decode_frame(p, f, decoder->get());
  };
}

}  // namespace fathom::lab::parallel_decompression
