// out = softmax(q k' / sqrt(64)) v           T x 64, fp32, one head
//
// bytes   1024 T   keys and values pass T / 96 times, from L2 or L3; no score leaves L2
// flops   256 T^2
// limit   FMA peak. Zen 3 at 3.4 GHz: T = 1024 is 268 MFLOP, 2.5 ms; the exponentials add some 10 %
// idea    online softmax: scores exist a tile of 96 x 128 at a time. Each tile may raise a row's maximum, and
//         then the row's sum and its part of out are rescaled
#include "attention.h"
#include "flash_block.h"

namespace fathom::lab::flash_attention_cpu {

void flash(const Attention& p, Context&) {
  const int64_t tokens = p.q.extent(0);
  transpose_keys(p);
  for (int64_t i = 0; i < tokens; i += kRows) flash_block(p, i, std::min(kRows, tokens - i));
}

}  // namespace fathom::lab::flash_attention_cpu
