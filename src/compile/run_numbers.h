// For tests: an executable on numbers, as the interpreter takes and gives them.
#pragma once

#include <map>
#include <span>
#include <string>

#include "compile/executable.h"
#include "compile/interpret.h"

namespace fathom::compile {

// What the executable makes of these inputs. Outputs begin as NaN, so that what is not written is seen.
std::map<std::string, Numbers> run(Executable& executable, std::span<const int64_t> symbols,
                                   const std::map<std::string, Numbers>& inputs, ThreadPool& pool);

}  // namespace fathom::compile
