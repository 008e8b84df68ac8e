// A sum of two numbers: the rounded one, and what rounding took away, itself added up.
#pragma once

namespace fathom::lab::compensated_sum {

struct Compensated {
  float sum = 0, error = 0;

  // TwoSum (Moller, Knuth): sum + lost is old sum + x, exactly, whichever of the two is larger. What waits
  // for the previous step is the first addition alone, and the last.
  void add(float x) {
    const float s    = sum + x;
    const float part = s - sum;  // of x, as much as arrived
    const float lost = (sum - (s - part)) + (x - part);
    sum              = s;
    error += lost;
  }
  float value() const { return sum + error; }
};

}  // namespace fathom::lab::compensated_sum
