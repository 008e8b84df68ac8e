// y = x * weight / rms(x)       batches of 2, 3, 4, ... rows
//
// idea    the function is kept: calls check guards, and set strides where the number of rows is another
#include <memory>

#include "program.h"

namespace fathom::lab::dynamic_rows {

Launch<Rows> kept(const Rows& p, Context& context) {
  const auto function = std::make_shared<compile::Function>(norm({}));
  serve(*function, p, context.pool);
  return [function](const Rows& rows, Context& c) { serve(*function, rows, c.pool); };
}

}  // namespace fathom::lab::dynamic_rows
