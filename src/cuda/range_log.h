// The ranges that NvtxRange opens and closes while a log is open: for timelines of our own, where no tool of
// NVIDIA is attached. A range that was open before the log is not in it. Closed, it costs a range one load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fathom {

struct LoggedRange {
  std::string name;
  int64_t start_ns = 0, end_ns = 0;  // on the steady clock
  uint32_t thread = 0;               // the system's thread id
};

// One log at a time; a second open starts anew.
void open_range_log();
std::vector<LoggedRange> close_range_log();  // sorted by start; ranges that are still open are left out

// What NvtxRange calls. False: no log is open, and end_range must not be called.
bool begin_range(const char* name);
void end_range();

}  // namespace fathom
