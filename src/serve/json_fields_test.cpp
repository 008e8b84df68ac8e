#include "serve/json_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace fathom::serve {
namespace {

std::string error_of(std::string_view text) {
  const JsonBody body(text);
  return body.error() ? body.error()->message : "";
}

std::string repeated(const std::string& text, int64_t times) {
  std::string all;
  for (int64_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(JsonBody, RefusesWhatIsNoObject) {
  for (const std::string text : {"",
                                 " ",
                                 "{",
                                 "}",
                                 "null",
                                 "1",
                                 "\"x\"",
                                 "[]",
                                 "true",
                                 "{}{}",
                                 "{} x",
                                 "{\"a\":}",
                                 "{'a':1}",
                                 "{\"a\":1,}",
                                 "{\"a\":NaN}",
                                 "{\"a\":Infinity}",
                                 "{\"a\":-}",
                                 "{\"a\":01}",
                                 "{\"a\":1e999}",
                                 "{\"a\":-1e999}",
                                 "{a:1}",
                                 "{\"a\":\"\xff\"}",
                                 "{\"a\":\"\xc0\x80\"}",
                                 "{\"a\":\"\xed\xa0\x80\"}",
                                 "{\"a\":\"\\ud800\"}",
                                 "{\"a\":\"\n\"}",
                                 "{\"a\":\"\\x\"}",
                                 "// c\n{}"}) {
    const std::string message = error_of(text);
    EXPECT_TRUE(message.starts_with("the body ")) << text << message;
    EXPECT_TRUE(message.ends_with("but must be one JSON object in UTF-8")) << message;
  }
  EXPECT_NE(error_of("{\"a\":1e999}").find("beyond all range"), std::string::npos);
  EXPECT_EQ(error_of(" {\"a\":\"\\u0000\\ud83d\\ude42\"} "), "");
}

TEST(JsonBody, DepthIsLimited) {
  const auto nested = [](int64_t depth) {
    return "{\"a\":" + repeated("[", depth - 1) + repeated("]", depth - 1) + "}";
  };
  EXPECT_EQ(error_of(nested(64)), "");
  EXPECT_NE(error_of(nested(65)).find("nested deeper than 64"), std::string::npos);
  EXPECT_NE(error_of(repeated("[", 1'000'000)).find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of(repeated("{\"a\":", 1'000'000)).find("nested deeper"), std::string::npos);
}

TEST(JsonBody, ValuesAreCounted) {
  constexpr int64_t kMost = 1 << 20;
  EXPECT_EQ(error_of("{\"a\":[" + repeated("1,", kMost - 3) + "1]}"), "");
  EXPECT_NE(error_of("{\"a\":[" + repeated("{},", kMost - 2) + "1]}").find("more than"), std::string::npos);
}

// The library's own parser is quadratic in the number of keys and takes minutes for this body.
TEST(JsonBody, ManyKeysTakeNoTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"key" + std::to_string(i) + "\":0,";
  EXPECT_EQ(error_of(text + "\"z\":1}"), "");
}

TEST(JsonBody, TheLastOfEqualKeysHolds) {
  JsonBody body(R"({"a":1,"b":{"x":1,"y":2,"x":[3]},"a":"two","c":0,"a":null,"c":5})");
  EXPECT_FALSE(body.root()["a"]);
  EXPECT_EQ(body.root()["c"].integer(0, 9), 5);
  EXPECT_EQ(body.root()["b"].object_text(), R"({"y":2,"x":[3]})");
  EXPECT_FALSE(body.error());
}

TEST(Field, KeepsOrder) {
  JsonBody body(R"({"schema":{"zebra":1,"apple":{"z":[1,2.5,true,null,"\u00e9"],"a":{}}}})");
  EXPECT_EQ(body.root()["schema"].object_text(),
            "{\"zebra\":1,\"apple\":{\"z\":[1,2.5,true,null,\"\xc3\xa9\"],\"a\":{}}}");
}

struct Bad {
  const char* value;
  const char* message;
};

template <class Read>
void expect_errors(std::initializer_list<Bad> cases, Read read) {
  for (const auto& [value, message] : cases) {
    JsonBody body(std::string("{\"o\":{\"f\":") + value + "}}");
    read(body.root()["o"]["f"]);
    ASSERT_TRUE(body.error()) << value;
    EXPECT_EQ(body.error()->message, message);
    EXPECT_EQ(body.error()->param, std::string(message).substr(0, body.error()->param.size()));
  }
}

TEST(Field, NamesThePlaceAndTheReason) {
  expect_errors({{"\"5\"", "o.f must be an integer, not a string"},
                 {"true", "o.f must be an integer, not true or false"},
                 {"1.5", "o.f is 1.5, but must be an integer"},
                 {"0", "o.f is 0, but must be between 1 and 5"},
                 {"6", "o.f is 6, but must be between 1 and 5"},
                 {"18446744073709551615", "o.f is 18446744073709551615, but must be between 1 and 5"},
                 {"18446744073709551617", "o.f is 1.8446744073709552e+19, but must be between 1 and 5"},
                 {"-9223372036854775809", "o.f is -9.223372036854776e+18, but must be between 1 and 5"},
                 {"1e308", "o.f is 1e+308, but must be between 1 and 5"}},
                [](const Field& field) { EXPECT_FALSE(field.integer(1, 5)); });
  expect_errors({{"{}", "o.f must be a number, not an object"},
                 {"1e308", "o.f is 1e+308, but must be between 0 and 2"},
                 {"-0.1", "o.f is -0.1, but must be between 0 and 2"}},
                [](const Field& field) { EXPECT_FALSE(field.number(0, 2)); });
  expect_errors({{"1", "o.f must be true or false, not a number"}},
                [](const Field& field) { EXPECT_FALSE(field.boolean()); });
  expect_errors({{"[]", "o.f must be a string, not a list"},
                 {"\"\"", "o.f has 0 bytes, but must have 1 to 3"},
                 {"\"four\"", "o.f has 4 bytes, but must have 1 to 3"}},
                [](const Field& field) { field.text(3); });
  expect_errors({{"\"c\"", "o.f is 'c', but must be one of a, b"}}, [](const Field& field) {
    field.one_of({"a", "b"});
  });
  expect_errors({{"1", "o.f must be an object, not a number"}}, [](const Field& field) {
    EXPECT_FALSE(field["deeper"]["still"]);
    EXPECT_TRUE(field.members(1).empty());
  });
  expect_errors({{"{}", "o.f must be a list, not an object"},
                 {"[0,1,2]", "o.f has 3 elements, but at most 2 are allowed"},
                 {"[0,null]", "o.f[1] must be an integer, not null"},
                 {"[0,9]", "o.f[1] is 9, but must be between 0 and 8"},
                 {"[-1]", "o.f[0] is -1, but must be between 0 and 8"},
                 {"[0,[1]]", "o.f[1] must be an integer, not a list"}},
                [](const Field& field) { EXPECT_TRUE(field.token_ids(2, 9).empty()); });
}

TEST(Field, TheFirstErrorStays) {
  JsonBody body(R"({"a":1,"b":2})");
  body.root()["a"].text();
  body.root()["b"].text();
  EXPECT_EQ(body.error()->param, "a");
}

TEST(Field, Reads) {
  JsonBody body(R"({"i":5.0,"low":-9223372036854775808,"n":2,"t":"x","l":[1.0,2],"none":null,"e":[]})");
  const Field root = body.root();
  EXPECT_EQ(root["i"].integer(1, 5), 5);
  EXPECT_EQ(root["low"].integer(INT64_MIN, INT64_MAX), INT64_MIN);
  EXPECT_EQ(root["n"].number(0, 2), 2.0);
  EXPECT_EQ(root["t"].text(1), "x");
  EXPECT_EQ(root["l"].token_ids(2, 3), (std::vector<model::TokenId>{1, 2}));
  EXPECT_FALSE(root["none"]);
  EXPECT_FALSE(root["absent"].text());
  EXPECT_EQ(root["absent"].size(0), 0);
  EXPECT_TRUE(root["e"].is_empty());
  EXPECT_FALSE(root["t"].is_empty());
  EXPECT_FALSE(body.error());
}

}  // namespace
}  // namespace fathom::serve
