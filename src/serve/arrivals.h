// When requests arrive in an open loop: they come when they come, however far the server is behind. The
// process is that of `vllm bench serve`.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace fathom::serve {

// The rate grows with each request from the first's to the last's.
struct Ramp {
  enum class Shape { linear, exponential };
  Shape shape      = Shape::linear;
  double start_rps = 1, end_rps = 1;  // positive, requests per second
};

struct ArrivalProcess {
  double request_rate = std::numeric_limits<double>::infinity();  // per second; infinity: all at once
  // Gaps are gamma distributed with this shape: 1 is Poisson, below are bursts, above is more even, infinity
  // is a metronome.
  double burstiness = 1;
  std::optional<Ramp> ramp;  // in place of request_rate
  uint64_t seed = 0;
};

// Seconds from the start, ascending, of `count` requests. Without a ramp they are stretched so that the last
// comes at exactly count / request_rate: the rate offered is the rate asked for, whatever the seed.
std::vector<double> arrival_times(const ArrivalProcess& process, int64_t count);

}  // namespace fathom::serve
