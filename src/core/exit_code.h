// Exit codes of `fathom`.
#pragma once

namespace fathom {

enum ExitCode : int {
  kExitOk          = 0,
  kExitRegression  = 1,  // or a missed expectation
  kExitWrongOutput = 2,
  kExitInvalid     = 3,  // no measurement that can be believed
  kExitNothingRan  = 4,  // everything was skipped
  kExitUsage       = 5,
  kExitCrash       = 6,  // or time-out, or out of memory
};

}  // namespace fathom
