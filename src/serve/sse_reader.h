// Server-sent events out of a byte stream that may be cut anywhere: WHATWG HTML, "Parsing an event stream".
// Of an event only the data is kept; that is all the OpenAI API uses.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom::serve {

class SseReader {
 public:
  // An event's data and the line being read may have so many bytes, together; beyond it add() refuses.
  explicit SseReader(size_t most_bytes = size_t{1} << 20) : most_bytes_(most_bytes) {}

  using Event = std::function<void(std::string_view data)>;

  // Calls `event` for each event that `piece` completes, in order. Comments and events without data are
  // passed over; what the stream's end leaves unfinished is never an event. After an error the reader is of
  // no more use.
  Status add(std::string_view piece, const Event& event);

 private:
  void end_line(const Event& event);

  size_t most_bytes_;
  std::string line_, data_;
  bool has_data_   = false;
  bool after_cr_   = false;  // a '\n' now belongs to the line that has ended
  bool first_line_ = true;   // may start with a byte order mark
};

}  // namespace fathom::serve
