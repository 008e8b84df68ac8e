#include "http/request_target.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "http/http.h"

namespace fathom::http {
namespace {

TEST(RequestTest, HeadersAreFoundWhateverTheirCase) {
  const Request request{.headers = {{"X-One", "1"}, {"x-one", "2"}, {"X-On", "3"}}};
  EXPECT_EQ(request.header("x-ONE"), "1");
  EXPECT_EQ(request.header("x-on"), "3");
  EXPECT_EQ(request.header("x-o"), "");
}

TEST(RequestTargetTest, PathsAreDecodedAndQueriesAreNot) {
  const auto parse = [](std::string_view text) {
    const auto target = parse_request_target(text);
    return target ? target->path + "|" + target->query : "error: " + target.error().message;
  };
  EXPECT_EQ(parse("/v1/models"), "/v1/models|");
  EXPECT_EQ(parse("/a%20b%2fc+d?x=%20?&y"), "/a b/c+d|x=%20?&y");
  EXPECT_EQ(parse("/%C3%a9"), "/\u00e9|");
  EXPECT_EQ(parse("/?"), "/|");
  EXPECT_EQ(parse("*"), "*|");
  EXPECT_EQ(parse("http://host:80/a?b"), "/a|b");
  EXPECT_EQ(parse("http://host"), "/|");
  for (const char* bad : {"", "a", "/%", "/%4", "/%4g", "/%g4", "/%+4", "/%-1", "/%00", "/%ff", "/%c3",
                          "/%ed%a0%80", "host:80", "**", "%2", "?a", "ftp://host/"})
    EXPECT_TRUE(parse(bad).starts_with("error: ")) << bad;
}

}  // namespace
}  // namespace fathom::http
