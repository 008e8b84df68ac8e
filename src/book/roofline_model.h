// The roofline: a kernel's time is at least that of its arithmetic and that of its bytes. The model of the
// book's roofline explorer; freestanding, for it is compiled to WebAssembly too
//.
#pragma once

namespace fathom::book {

struct Ceilings {
  double flops_per_s;
  double bytes_per_s;
};

struct Work {
  double flops;
  double bytes;
};

// The intensity, in flop per byte, above which arithmetic is the limit.
double ridge(const Ceilings& ceilings);

// Flop/s at an intensity: the roof.
double attainable(const Ceilings& ceilings, double intensity);

// fixed_s, then the slower of arithmetic and memory, in seconds: time adds in series and takes the maximum in
// parallel.
double time_of(const Ceilings& ceilings, const Work& work, double fixed_s);

// y[batch][out] = x[batch][in] * w[in][out]; each array crosses the memory once.
Work dense_layer(double batch, double in, double out, double element_bytes);

// The smallest whole batch for which arithmetic is the limit of dense_layer; 0 when it never is.
double batch_at_ridge(const Ceilings& ceilings, double in, double out, double element_bytes);

}  // namespace fathom::book
