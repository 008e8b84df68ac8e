// Timelines in Chrome's trace JSON, which ui.perfetto.dev opens. Input times are integer nanoseconds on one
// clock; the JSON has microseconds since the first of them. Source: "Trace Event Format",
// chromium.googlesource.com/catapult; events X, s, f, C and M.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/point.h"

namespace fathom::profile {

class Trace {
 public:
  struct Argument {
    std::string name;
    lab::Value value;
  };

  // How overlapping slices of a track are drawn: `nested` slices, calls within calls, inside each other;
  // `apart` slices, such as kernels, on additional tracks below.
  enum class Overlap { nested, apart };

  // A group of tracks: a GPU, a host process. Groups and tracks are shown in the order of their creation.
  int process(std::string name);
  int track(int process, std::string name, Overlap overlap);

  // Returns the slice's number, for flow(). An end before the start counts as the start.
  int slice(int track, std::string name, int64_t start_ns, int64_t end_ns,
            std::vector<Argument> arguments = {});
  // An arrow from the start of one slice to the start of another: from a launch to its kernel.
  void flow(int from_slice, int to_slice, std::string name);
  // A sample of a value over time, drawn as a step chart below the process's name.
  void counter(int process, std::string name, int64_t at_ns, double value);

  std::string json() const;
  void write(const std::string& path) const;  // atomically; throws SystemError

 private:
  struct Track {
    int process;
    std::string name;
    Overlap overlap;
  };
  struct Slice {
    int track;
    std::string name;
    int64_t start_ns, end_ns;
    std::vector<Argument> arguments;
  };
  struct Flow {
    int from, to;
    std::string name;
  };
  struct Sample {
    int process;
    std::string name;
    int64_t at_ns;
    double value;
  };
  // The lane of each slice: 0 is its track, 1 the first additional track below.
  std::vector<int> lanes() const;

  std::vector<std::string> processes_;
  std::vector<Track> tracks_;
  std::vector<Slice> slices_;
  std::vector<Flow> flows_;
  std::vector<Sample> samples_;
};

}  // namespace fathom::profile
