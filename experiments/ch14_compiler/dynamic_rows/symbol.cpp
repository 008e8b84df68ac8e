// y = x * weight / rms(x)       batches of 2, 3, 4, ... rows
//
// idea    the first shape is compiled; at the second the number of rows becomes a symbol, and the code is for
// any
#include "program.h"

namespace fathom::lab::dynamic_rows {

void symbol(const Rows& p, Context& context) {
  compile::Function function = norm({});
  serve(function, p, context.pool);
}

}  // namespace fathom::lab::dynamic_rows
