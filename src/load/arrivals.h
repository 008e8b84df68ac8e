// Arrival times of an open loop: requests arrive at their times, however far the server is behind. The
// process is that of `vllm bench serve`.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace fathom::load {

// The rate grows with every request, from start_rps at the first to end_rps at the last.
struct Ramp {
  enum class Shape { linear, exponential };
  Shape shape      = Shape::linear;
  double start_rps = 1, end_rps = 1;  // positive, requests per second
};

struct ArrivalProcess {
  double request_rate = std::numeric_limits<double>::infinity();  // per second; infinity: all at once
  // Shape of the gamma distribution of the gaps: 1 is a Poisson process, less is burstier, more is more
  // regular, infinity spaces all requests equally.
  double burstiness = 1;
  std::optional<Ramp> ramp;  // replaces request_rate
  uint64_t seed = 0;
};

// Seconds from the start for `count` requests, ascending. Without a ramp they are scaled so that the last one
// arrives at exactly count / request_rate: the offered rate does not depend on the seed.
std::vector<double> arrival_times(const ArrivalProcess& process, int64_t count);

}  // namespace fathom::load
