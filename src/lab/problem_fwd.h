// Forward declarations for the header of a GPU experiment's problem, so that its .cu files do not include
// lab/problem.h, which takes nvcc long to read.
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
