#include "kernels/attention/mla_decode.h"
#include "mla.h"

namespace fathom::lab::mla_decode_gpu {

void warpgroups(const MlaStep& p, StreamRef stream) {
  kernels::mla_decode(p.q, p.latent, p.contexts, p.pages, kScale, p.partials, p.out, stream);
}

}  // namespace fathom::lab::mla_decode_gpu
