// A variant that is not compiled in: a file of yours, verified and timed beside an experiment's own variants.
//
//   #include "lab/candidate.h"
//   #include "matmul.h"  // the problem, in the experiment's folder
//
//   namespace fathom::lab::matmul_cpu {
//   void mine(const MatMul& p, Context& context) { ... }
//   FATHOM_CANDIDATE(mine)
//   }  // namespace fathom::lab::matmul_cpu
//
// `fathom run ch09:matmul_cpu --candidate mine.cpp` compiles it with the flags that all variants have
// and loads it in the child process that measures the experiment: what it breaks there, breaks nothing else.
#pragma once

#include <string>

#include "lab/candidate_library.h"
#include "lab/problem.h"

namespace fathom::lab {

template <class P>
std::string problem_of(void (*)(const P&, Context&)) {
  return problem_name<P>();
}
template <class P>
void launch_on(void (*launch)(const P&, Context&), const void* problem, Context& context) {
  launch(*static_cast<const P*>(problem), context);
}

}  // namespace fathom::lab

// Once in a candidate's file.
#define FATHOM_CANDIDATE(launch)                                                                  \
  extern "C" const char* fathom_candidate_problem() {                                             \
    static const std::string name = ::fathom::lab::problem_of(&launch);                           \
    return name.c_str();                                                                          \
  }                                                                                               \
  extern "C" void fathom_candidate_launch(const void* problem, ::fathom::lab::Context& context) { \
    ::fathom::lab::launch_on(&launch, problem, context);                                          \
  }
