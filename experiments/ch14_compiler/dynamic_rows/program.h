// The norm as a function of the tensor compiler, and a stream of batches through it.
#pragma once

#include "compile/function.h"
#include "rows.h"

namespace fathom::lab::dynamic_rows {

compile::Function norm(const compile::Options& options);
void serve(compile::Function& function, const Rows& p, ThreadPool& pool);

}  // namespace fathom::lab::dynamic_rows
