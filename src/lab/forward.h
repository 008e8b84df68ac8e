// What the header of a GPU experiment's problem names and its .cu files need not know: lab/experiment.h,
// lab/check.h and core/arena.h, of which nvcc would have to read much.
#pragma once

namespace fathom {
class Arena;
}

namespace fathom::lab {
class Checker;
class Point;
struct Cost;
struct Sum;
}  // namespace fathom::lab
