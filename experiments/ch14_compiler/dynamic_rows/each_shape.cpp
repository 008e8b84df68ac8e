// y = x * weight / rms(x)       batches of 2, 3, 4, ... rows
//
// idea    baseline: every shape is compiled, as extents are constants of the code
#include "program.h"

namespace fathom::lab::dynamic_rows {

void each_shape(const Rows& p, Context& context) {
  compile::Function function = norm({.symbols = false, .max_entries = static_cast<size_t>(p.batches) + 1});
  serve(function, p, context.pool);
}

}  // namespace fathom::lab::dynamic_rows
