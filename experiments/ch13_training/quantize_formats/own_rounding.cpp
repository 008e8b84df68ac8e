#include "conversion.h"
#include "kernels/quant/quantize.h"

namespace fathom::lab::quantize_formats {

void own_rounding(const Conversion& p, StreamRef stream) {
  with_format(p.format, [&]<class Format>() { kernels::quantize(p.x, p.in<Format>(), stream); });
}

}  // namespace fathom::lab::quantize_formats
