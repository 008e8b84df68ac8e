// x = x + down(swiglu(up(norm(x)))), L times       4 tokens, then 8
//
// idea    baseline: the model is one program, captured and compiled at the first step, and again at the
// second
//         for any number of tokens
#include "program.h"

namespace fathom::lab::regional_compilation {

void whole(const Stack& p, Context& context) {
  compile::Function function = model({.regions = false});
  serve(function, p, context.pool);
}

}  // namespace fathom::lab::regional_compilation
