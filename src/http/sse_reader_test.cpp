#include "http/sse_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fathom::http {
namespace {

using Events = std::vector<std::string>;

Events read(const std::vector<std::string_view>& pieces) {
  SseReader reader;
  Events events;
  for (const std::string_view piece : pieces)
    EXPECT_TRUE(reader.add(piece, [&](std::string_view data) { events.emplace_back(data); }));
  return events;
}

// A byte order mark, all three line ends, a comment, fields that are ignored, data over several lines, an
// empty event, data without a colon, a space that belongs to the data, and an incomplete event.
const std::string kStream =
    "\xEF\xBB\xBF"
    "data: {\"a\":1}\n\n"
    ": ping\n\n"
    "event: x\r\nid: 7\r\ndata:two\r\ndata: lines\r\n\r\n"
    "data\n\n"
    "data:  spaced\r\r"
    "\n\n\n"
    "database: no\n\n"
    "data: \xC3\xA9\xF0\x9F\x98\x80\n\n"
    "data: [DONE]\n\n"
    "data: never";
const Events kEvents = {"{\"a\":1}", "two\nlines", "", " spaced", "\xC3\xA9\xF0\x9F\x98\x80", "[DONE]"};

TEST(SseReader, ReadsAStreamInOnePiece) { EXPECT_EQ(read({kStream}), kEvents); }

TEST(SseReader, AnyTwoCutsChangeNothing) {
  const std::string_view all = kStream;
  for (size_t a = 0; a <= all.size(); ++a)
    for (size_t b = a; b <= all.size(); ++b)
      ASSERT_EQ(read({all.substr(0, a), all.substr(a, b - a), all.substr(b)}), kEvents) << a << " " << b;
}

TEST(SseReader, ByteByByte) {
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < kStream.size(); ++i) bytes.push_back(std::string_view(kStream).substr(i, 1));
  EXPECT_EQ(read(bytes), kEvents);
}

TEST(SseReader, RefusesToGrowWithoutBound) {
  for (const std::string_view piece : {"x", "data: x\n"}) {  // an endless line, an endless event
    SseReader reader(1000);
    int pieces = 0;
    Status status{Ok{}};
    while ((status = reader.add(piece, [](std::string_view) { FAIL(); })) && pieces < 2000) ++pieces;
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("1000 bytes"), std::string::npos);
    EXPECT_GE(pieces, 400);
  }
}

}  // namespace
}  // namespace fathom::http
