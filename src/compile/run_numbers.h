// For tests: an executable on numbers, as the interpreter takes and gives them.
#pragma once

#include <map>
#include <span>
#include <string>

#include "compile/interpret.h"
#include "compile/piecewise.h"

namespace fathom::compile {

// What the program makes of these inputs, by the names of its graph. Outputs begin as NaN, so that what is
// not written is seen.
std::map<std::string, Numbers> run(Executable& program, std::span<const int64_t> symbols,
                                   const std::map<std::string, Numbers>& inputs, ThreadPool& pool);
std::map<std::string, Numbers> run(Piecewise& program, std::span<const int64_t> symbols,
                                   const std::map<std::string, Numbers>& inputs, ThreadPool& pool);

}  // namespace fathom::compile
