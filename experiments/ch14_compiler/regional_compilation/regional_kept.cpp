// x = x + down(swiglu(up(norm(x)))), L times       4 tokens, then 8
//
// idea    L calls of one block's code, compiled before the clock starts: the steps alone
#include <memory>

#include "program.h"

namespace fathom::lab::regional_compilation {

Launch<Stack> regional_kept(const Stack& p, Context& context) {
  const auto function = std::make_shared<compile::Function>(model({}));
  serve(*function, p, context.pool);
  return [function](const Stack& stack, Context& c) { serve(*function, stack, c.pool); };
}

}  // namespace fathom::lab::regional_compilation
