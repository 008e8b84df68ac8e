// Reads server-sent events from a byte stream that may be cut anywhere (WHATWG HTML, "Parsing an event
// stream"). It keeps the data of an event only; the OpenAI API uses nothing else.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom::http {

class SseReader {
 public:
  // add() refuses more than `max_bytes` of an event's data and the current line together.
  explicit SseReader(size_t max_bytes = size_t{1} << 20) : max_bytes_(max_bytes) {}

  using Event = std::function<void(std::string_view data)>;

  // Calls `event` for each event that `piece` completes, in order. It skips comments and events without data.
  // What is incomplete at the end of the stream is no event. After an error the reader cannot be used any
  // more.
  Status add(std::string_view piece, const Event& event);

 private:
  void end_line(const Event& event);

  size_t max_bytes_;
  std::string line_, data_;
  bool has_data_   = false;
  bool after_cr_   = false;  // a '\n' now belongs to the line before
  bool first_line_ = true;   // it may start with a byte order mark
};

}  // namespace fathom::http
