// x = x + down(swiglu(up(norm(x)))), L times       4 tokens, then 8
//
// idea    each block is a program of its own; all L are equal, so one is compiled at each step
#include "program.h"

namespace fathom::lab::regional_compilation {

void regional(const Stack& p, Context& context) {
  compile::Function function = model({});
  serve(function, p, context.pool);
}

}  // namespace fathom::lab::regional_compilation
