// School algebra, for T = unsigned, int or float: `NAME` is what a program says, `NAME_as` what algebra would
// make of it. tests/book_listings_test.py compares their code; chapter 10 has the table.

T factor(T a, T b, T c) { return a * c + b * c; }
T factor_as(T a, T b, T c) { return (a + b) * c; }

T regroup(T x) { return (x + 1) + 2; }
T regroup_as(T x) { return x + 3; }

T cancel(T x, T y) { return x + y - y; }
T cancel_as(T x, T) { return x; }

T negate(T x, T y) { return -(x - y); }
T negate_as(T x, T y) { return y - x; }

T zero(T x) { return 0 * x; }
T zero_as(T) { return 0; }

bool same(T x) { return x == x; }
bool same_as(T) { return true; }

T plus_zero(T x) { return x + 0; }
T plus_zero_as(T x) { return x; }

T minus_zero(T x) { return x - 0; }
T minus_zero_as(T x) { return x; }

T twice(T x) { return 2 * x; }
T twice_as(T x) { return x + x; }

T there_and_back(T x) { return x * 2 / 2; }
T there_and_back_as(T x) { return x; }

T cube(T x) { return x * x * x + 3 * x * x + 3 * x + 1; }
T cube_as(T x) { return (x + 1) * (x + 1) * (x + 1); }

bool larger(T x) { return x + 1 > x; }
bool larger_as(T) { return true; }

// No pairs: the question is whether the code divides.
T eighth(T x) { return x / 8; }
T tenth(T x) { return x / 10; }

// Whether an FMA, which rounds once, replaces two operations that round twice.
T multiply_add(T x, T y, T z) { return x * y + z; }
