// The model as a function of the tensor compiler, and its two steps.
#pragma once

#include "compile/function.h"
#include "stack.h"

namespace fathom::lab::regional_compilation {

// Each block is a region of the trace.
compile::Function model(const compile::Options& options);
void serve(compile::Function& function, const Stack& p, ThreadPool& pool);

}  // namespace fathom::lab::regional_compilation
