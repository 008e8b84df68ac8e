// The work that an op declares: each op's header has a `<op>_cost` beside the launcher. Profiles divide it by
// the measured time, which gives a rate and a share of the machine's limit.
#pragma once

namespace fathom::kernels {

// Bytes are those of operands and results, each counted once, wherever they lie. Small activations may come
// from L2, so that their rates can exceed the bandwidth of DRAM.
struct Cost {
  double read = 0, written = 0;  // bytes
  double flops = 0;

  double bytes() const { return read + written; }
  Cost& operator+=(const Cost& other) {
    read += other.read;
    written += other.written;
    flops += other.flops;
    return *this;
  }
};
inline Cost operator+(Cost a, const Cost& b) { return a += b; }
inline Cost operator*(double n, const Cost& cost) {
  return {n * cost.read, n * cost.written, n * cost.flops};
}

}  // namespace fathom::kernels
