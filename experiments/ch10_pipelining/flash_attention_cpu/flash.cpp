// out = softmax(q k' / sqrt(64)) v           T x 64, fp32, one head
//
// bytes   1024 T   keys and values pass T / 96 times, from L2 or L3; no score leaves L2
// flops   256 T^2
// limit   FMA peak. Zen 3 at 3.4 GHz: T = 1024 is 268 MFLOP, 2.5 ms; the exponentials add some 10 %
// idea    scores exist a tile at a time, 96 x 128. Maximum and sum are corrected as tiles pass (online
// softmax), and so is
//         what has been added up of out
#include "attention.h"
#include "flash_block.h"

namespace fathom::lab::flash_attention_cpu {

void flash(const Attention& p, Context&) {
  const int64_t tokens = p.q.extent(0);
  transpose_keys(p);
  for (int64_t i = 0; i < tokens; i += kRows) flash_block(p, i, std::min(kRows, tokens - i));
}

}  // namespace fathom::lab::flash_attention_cpu
