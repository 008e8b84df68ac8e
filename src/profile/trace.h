// Timelines as Chrome's trace JSON, which ui.perfetto.dev opens. Times go in as integer nanoseconds on one
// clock; they come out as microseconds since the first of them.
// Source: "Trace Event Format", chromium.googlesource.com/catapult; events X, s, f, C and M.
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

  // Slices of one track that overlap: `nested` is a call within a call and stays where it is drawn inside the
  // other; `apart` are things of equal rank, such as kernels. What cannot stay moves to a further track
  // below.
  enum class Overlap { nested, apart };

  // A group of tracks: a device, a host process. Shown in the order they were made, as their tracks are.
  int process(std::string name);
  int track(int process, std::string name, Overlap overlap);

  // Returns its number, for flow(). An end before the start counts as the start.
  int slice(int track, std::string name, int64_t start_ns, int64_t end_ns,
            std::vector<Argument> arguments = {});
  // An arrow from the start of one slice to the start of another: a launch and what it launched.
  void flow(int from_slice, int to_slice, std::string name);
  // A value over time, drawn as a step chart below the process's name.
  void counter(int process, std::string name, int64_t at_ns, double value);

  std::string json() const;
  void write(const std::string& path) const;  // whole or not at all; throws SystemError

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
  // Of each slice: 0 is its own track, 1 the first one below it.
  std::vector<int> lanes() const;

  std::vector<std::string> processes_;
  std::vector<Track> tracks_;
  std::vector<Slice> slices_;
  std::vector<Flow> flows_;
  std::vector<Sample> samples_;
};

}  // namespace fathom::profile
