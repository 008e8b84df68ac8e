// Progress of a run on standard error: one line that rewrites itself on a terminal, plain lines in a pipe.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "lab/run_experiments.h"

namespace fathom::cli {

class ProgressDisplay {
 public:
  // `columns`: width of the terminal; 0: `out` is not a terminal.
  ProgressDisplay(std::FILE* out, int columns) : out_(out), columns_(columns) {}
  ~ProgressDisplay() { clear(); }
  ProgressDisplay(const ProgressDisplay&)            = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void show(const lab::Progress& progress);
  void clear();  // erases the progress line

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* out_;
  int columns_;
  bool drawn_ = false;
  Clock::time_point last_{};
};

int terminal_columns(int fd);  // 0 when it is not a terminal

// "[#####---------------] 3/12 ch07/transpose_cpu tiled: measure, 1 min 20 s left", cut to fit.
std::string progress_bar(const lab::Progress& progress, int columns);
// "3/12 ch07/transpose_cpu: ok in 2.1 s, 1 min 20 s left"
std::string progress_line(const lab::Progress& progress);

std::string duration_text(double seconds);  // "0.4 s", "12 s", "1 min 20 s", "2 h 5 min"

}  // namespace fathom::cli
