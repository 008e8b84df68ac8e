#include "http/sse_reader.h"

#include <fmt/format.h>

namespace fathom::http {

Status SseReader::add(std::string_view piece, const Event& event) {
  while (!piece.empty()) {
    if (after_cr_) {
      after_cr_ = false;
      if (piece.front() == '\n') {
        piece.remove_prefix(1);
        continue;
      }
    }
    const size_t end = piece.find_first_of("\r\n");
    line_ += piece.substr(0, end);
    if (line_.size() + data_.size() > max_bytes_)
      return Error{fmt::format("the server sent an event of more than {} bytes", max_bytes_)};
    if (end == std::string_view::npos) return Ok{};
    after_cr_ = piece[end] == '\r';
    piece.remove_prefix(end + 1);
    end_line(event);
  }
  return Ok{};
}

void SseReader::end_line(const Event& event) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  std::string_view line                     = line_;
  if (first_line_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  first_line_ = false;
  if (line.empty()) {
    if (has_data_) event(data_);
    data_.clear();
    has_data_ = false;
  } else if (line == "data" || line.starts_with("data:")) {
    line.remove_prefix(line.size() == 4 ? 4 : 5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
  line_.clear();
}

}  // namespace fathom::http
