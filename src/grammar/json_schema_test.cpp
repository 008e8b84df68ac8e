#include "grammar/json_schema.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "grammar/json_matcher.h"
#include "grammar/json_schema_reference.h"

namespace fathom::grammar {
namespace {

std::shared_ptr<const JsonGrammar> compiled(const std::string& schema) {
  auto grammar = compile_json_schema(schema);
  EXPECT_TRUE(grammar) << schema << ": " << grammar.error().message;
  return *grammar;
}

bool accepts(const std::shared_ptr<const JsonGrammar>& grammar, std::string_view text) {
  JsonMatcher matcher(grammar);
  for (const char c : text)
    if (!matcher.push(static_cast<uint8_t>(c))) return false;
  return matcher.complete();
}

void expect(const std::string& schema, const std::vector<std::string>& good,
            const std::vector<std::string>& bad) {
  const auto grammar = compiled(schema);
  for (const std::string& text : good) EXPECT_TRUE(accepts(grammar, text)) << schema << " refuses " << text;
  for (const std::string& text : bad) EXPECT_FALSE(accepts(grammar, text)) << schema << " admits " << text;
}

std::string refusal(const std::string& schema) {
  const auto grammar = compile_json_schema(schema);
  EXPECT_FALSE(grammar) << schema;
  return grammar ? "" : grammar.error().message;
}

// Adds the one space that may follow a comma or a colon outside strings.
std::string spaced(const std::string& json) {
  std::string text;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    text += json[i];
    if (in_string && json[i] == '\\')
      text += json[++i];
    else if (json[i] == '"')
      in_string = !in_string;
    else if (!in_string && (json[i] == ',' || json[i] == ':'))
      text += ' ';
  }
  return text;
}

// Draws uniformly among the allowed next bytes. The text must end within `longest` bytes.
std::string random_text(const std::shared_ptr<const JsonGrammar>& grammar, RandomSchemas& random,
                        size_t longest) {
  JsonMatcher matcher(grammar);
  std::string text;
  while (true) {
    std::vector<uint8_t> next;
    for (int byte = 0; byte < 256; ++byte)
      if (matcher.push(static_cast<uint8_t>(byte))) {
        matcher.pop();
        next.push_back(static_cast<uint8_t>(byte));
      }
    if (matcher.complete() && (next.empty() || random.below(3) == 0)) return text;
    EXPECT_FALSE(next.empty()) << "a dead end after " << text;
    EXPECT_LT(text.size(), longest) << text.substr(0, 200);
    if (next.empty() || text.size() >= longest) return text;
    text += static_cast<char>(next[static_cast<size_t>(random.below(static_cast<int64_t>(next.size())))]);
    matcher.push(static_cast<uint8_t>(text.back()));
    if (random.below(4) == 0) matcher.commit();
  }
}

TEST(JsonSchema, Scalars) {
  expect(R"({"type":"boolean"})", {"true", "false"}, {"null", "tru", "truee", " true", "true "});
  expect(R"({"type":"null"})", {"null"}, {"nul", "0"});
  expect(R"({"type":"integer"})", {"0", "-1", "123", "9223372036854775807", "-9223372036854775807"},
         {"01", "1.0", "1e3", "+1", "-", "9223372036854775808", "99999999999999999999"});
  expect(R"({"type":"number"})",
         {"0", "-1.5", "0.30000000000000004", "1e22", "5e-324", "1.7E+10", "12345678901234567890"},
         {"1.", ".5", "1e", "1e+", "00", "-01", "1e999", "NaN", "--1"});
  expect(R"({"type":["string","null"]})", {"null", R"("")"}, {"1"});
  expect(R"({"type":"string","nullable":true})", {"null", R"("a")"}, {"1"});
  expect("true", {"1", "[]", "{}", R"({"a":[1, {"b":null}]})"}, {"", "[1,]", "{a:1}"});
}

TEST(JsonSchema, Strings) {
  expect(R"({"type":"string"})",
         {R"("")", R"("a\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00")", "\"é漢😀\x7f\"", R"("\ud7ff\ue000\u0000")"},
         {"\"", "\"\n\"", "\"\x01\"", R"("\x")", R"("\u12g4")", R"("\ud800")", R"("\udc00")",
          R"("\ud800\u0041")", "\"\xff\"", "\"\xc3\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
          "\"\xf4\x90\x80\x80\"", "\"\xe0\x80\x80\"", "'a'"});
  expect(R"({"type":"string","minLength":2,"maxLength":3})",
         {R"("ab")", R"("abc")", R"("é漢😀")", R"("\u00e9\ud83d\ude00")", R"("\n\n\n")"},
         {R"("a")", R"("abcd")", R"("")", R"("é漢😀a")", R"("\ud83d\ude00")"});
  expect(R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"});
}

TEST(JsonSchema, PatternsMatchAnywhereUnlessAnchored) {
  expect(R"({"type":"string","pattern":"^a.c$"})", {R"("abc")", R"("a\"c")", "\"a漢c\""},
         {R"("ac")", R"("a\nc")", R"("abcd")"});
  expect(R"({"type":"string","pattern":"b"})", {R"("b")", R"("abc")", R"("\nb")"}, {R"("a")", R"("")"});
  expect(R"({"type":"string","pattern":"^a|b$"})", {R"("axx")", R"("xxb")"}, {R"("xa")", R"("bx")"});
  expect(R"({"type":"string","pattern":"^[^\"]*$"})", {R"("a\\b")"}, {R"("a\"b")"});
  expect(R"({"type":"string","pattern":"^(?:ab?){2,3}\\.\\/$"})", {R"("aba./")", R"("aaa./")"},
         {R"("a./")", R"("aaaa./")"});
  expect(R"({"type":"string","pattern":"^[à-ü]+$"})", {"\"éü\""}, {"\"a\"", "\"ÿ\"", R"("")"});
  expect(R"({"type":"string","pattern":"^[a-z]*$","minLength":2,"maxLength":3})", {R"("ab")", R"("abc")"},
         {R"("a")", R"("abcd")"});
  expect(R"({"type":"string","pattern":"^\\u{1F600}\\u00e9\\x41[\\]\\-]$"})", {"\"😀éA]\"", "\"😀éA-\""},
         {"\"😀éA\""});
}

TEST(JsonSchema, Formats) {
  const auto format = [](const char* name) {
    return fmt::format(R"({{"type":"string","format":"{}"}})", name);
  };
  expect(format("date"), {R"("2024-02-29")", R"("2000-02-29")", R"("2023-12-31")"},
         {R"("2023-02-29")", R"("1900-02-29")", R"("2023-13-01")", R"("2023-04-31")", R"("2023-4-1")",
          R"("2023-01-00")"});
  expect(format("date-time"), {R"("2024-02-29T23:59:59Z")", R"("2024-01-01T00:00:00.123+05:30")"},
         {R"("2024-01-01")", R"("2024-01-01T24:00:00Z")", R"("2024-01-01T00:00:00")"});
  expect(format("time"), {R"("12:00:00Z")"}, {R"("12:60:00Z")"});
  expect(format("uuid"), {R"("123e4567-e89b-12d3-a456-426614174000")"},
         {R"("123e4567e89b12d3a456426614174000")"});
  expect(format("email"), {R"("a.b+c@example.co")"}, {R"("a@b")", R"(".a@b.co")", R"("a b@c.de")"});
  expect(format("ipv4"), {R"("127.0.0.1")", R"("255.255.255.255")"},
         {R"("256.0.0.1")", R"("1.2.3")", R"("01.2.3.4")"});
  expect(format("ipv6"), {R"("2001:db8:0:0:0:0:2:1")"}, {R"("2001:db8")"});
  expect(format("hostname"), {R"("example.org")", R"("a-b")"}, {R"("-a")", R"("a..b")"});
  expect(format("duration"), {R"("P1D")", R"("PT1H30M")", R"("P3W")", R"("P1Y2M3DT4H")"},
         {R"("P")", R"("PT")", R"("P1DT")", R"("1D")"});
}

TEST(JsonSchema, NumberBoundsAgreeWithArithmetic) {
  const std::vector<std::string> bounds = {"-1200", "-100", "-10.5", "-1", "-0.05", "0",   "0.1",
                                           "1",     "9",    "9.99",  "10", "99",    "1e2", "1.5e3"};
  std::vector<std::string> numbers      = {"-0",     "0.0",   "-0.0",   "0.1",    "0.10",   "0.099",
                                           "0.11",   "9.9",   "9.99",   "9.991",  "-10.5",  "-10.51",
                                           "-10.49", "-0.05", "-0.050", "-0.049", "1500.0", "1500.1"};
  for (int n = -1300; n <= 1600; n += n > -130 && n < 130 ? 1 : 37) numbers.push_back(std::to_string(n));
  for (const std::string& low : bounds)
    for (const std::string& high : bounds) {
      if (std::stod(low) > std::stod(high)) continue;
      for (const bool exclusive : {false, true}) {
        if (exclusive && low == high) continue;
        const auto schema = [&](const char* type) {
          return exclusive ? fmt::format(R"({{"type":"{}","exclusiveMinimum":{},"exclusiveMaximum":{}}})",
                                         type, low, high)
                           : fmt::format(R"({{"type":"{}","minimum":{},"maximum":{}}})", type, low, high);
        };
        const auto number  = compile_json_schema(schema("number"));
        const auto integer = compile_json_schema(schema("integer"));
        ASSERT_TRUE(number) << number.error().message;
        for (const std::string& text : numbers) {
          const double value = std::stod(text);
          const bool inside  = exclusive ? value > std::stod(low) && value < std::stod(high)
                                         : value >= std::stod(low) && value <= std::stod(high);
          EXPECT_EQ(accepts(*number, text), inside) << schema("number") << " " << text;
          if (text.find('.') != std::string::npos) continue;
          EXPECT_EQ(integer && accepts(*integer, text), inside) << schema("integer") << " " << text;
        }
      }
    }
  expect(R"({"type":"integer","minimum":-9223372036854775807,"maximum":9007199254740993})",
         {"-9223372036854775807", "9007199254740993"}, {"9007199254740994"});
  expect(R"({"type":"number","minimum":0,"maximum":1e300})", {"123456789012345", "0.25"}, {"-1"});
  expect(R"({"type":"integer","multipleOf":7,"minimum":-20})", {"-14", "0", "7", "700"}, {"1", "-21", "8"});
}

TEST(JsonSchema, ObjectsKeepTheirOrderAndAreClosed) {
  const std::string abc =
      R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"integer"},"ab":{"type":"integer"}},"required":["a"])";
  expect(abc + "}", {R"({"a":1})", R"({"b":1,"a":2})", R"({"b": 1, "a": 2, "ab": 3})", R"({"a":1,"ab":2})"},
         {"{}", R"({"b":1})", R"({"a":1,"b":2})", R"({"a":1,"a":2})", R"({"a":1,})", R"({"a":1,"c":2})",
          R"({"a":  1})", R"({ "a":1})", R"({"a" :1})", R"({"a":1 })"});
  expect(
      abc + R"(,"additionalProperties":{"type":"null"}})",
      {R"({"a":1,"c":null})", R"({"b":1,"a":2,"ab":3,"x":null,"\"":null})", R"({"a":1,"abc":null,"":null})"},
      {R"({"a":1,"c":2})", R"({"c":null,"a":1})", R"({"a":1,"ab":null})", R"({"a":1,"a":null})",
       R"({"a":1,"\u0061":null})", R"({"a":1,"b":null})"});
  expect(R"({"type":"object","required":["x"],"additionalProperties":{"type":"integer"}})",
         {R"({"x":1})", R"({"x":1,"y":2})"}, {"{}", R"({"y":2})"});
  expect(R"({"type":"object"})", {"{}", R"({"a\u0062":{"c":[1]}, "d":""})"}, {"[]"});
  expect(R"({"type":"object","properties":{}})", {"{}"}, {R"({"a":1})"});
  expect(R"({"type":"object","properties":{"a":false,"b":true},"additionalProperties":true})",
         {R"({"b":1})", R"({"c":1})", "{}"}, {R"({"a":1})", R"({"c":1,"a":1})"});
}

TEST(JsonSchema, Arrays) {
  expect(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
         {"[1]", "[1,2]", "[1, 2, 3]"}, {"[]", "[1,2,3,4]", "[1,]", "[,1]", "[1 ,2]", R"(["a"])"});
  expect(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})",
         {"[]", "[1]", R"([1,"a"])"}, {R"([1,"a",2])", R"(["a"])"});
  expect(R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},"minItems":2})",
         {"[1,null]", "[1,null,null]"}, {"[1]", "[1,2]"});
  expect(R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"});
  expect(R"({"type":"array"})", {"[]", R"([1,"a",[null]])"}, {"{}"});
}

TEST(JsonSchema, EnumerationsAndConstants) {
  expect(R"({"enum":["a","ab",1,10,null,{"k":[1]},"é\n"]})",
         {R"("a")", R"("ab")", "1", "10", "null", R"({"k":[1]})", R"({"k": [1]})", R"("é\n")"},
         {R"("b")", "11", R"({"k":[2]})", "{}"});
  expect(R"({"type":"string","enum":["a",1,null]})", {R"("a")"}, {"1", "null"});
  expect(R"({"const":-2.5})", {"-2.5"}, {"2.5", "-2.50"});
  expect(R"({"allOf":[{"enum":[1,2,3]},{"enum":[2,3,4]}]})", {"2", "3"}, {"1", "4"});
}

TEST(JsonSchema, Combinations) {
  expect(
      R"({"anyOf":[{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]},{"type":"object","properties":{"x":{"type":"string"},"y":{}},"required":["x"]}]})",
      {R"({"x":1})", R"({"x":"a"})", R"({"x":"a","y":[]})"}, {R"({"x":1,"y":2})", R"({"x":null})"});
  expect(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
      {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}"});
  expect(
      R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":1}},"required":["a"]},{"properties":{"a":{"maximum":3},"b":{"type":"null"}}}]})",
      {R"({"a":1})", R"({"a":3,"b":null})"}, {R"({"a":0})", R"({"a":4})", R"({"b":null})"});
  expect(
      R"({"allOf":[{"type":"object","properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
      {R"({"a":1})", "{}"}, {R"({"b":1})"});
  expect(R"({"allOf":[{"type":["string","null"]},{"type":["null","integer"]}]})", {"null"}, {"1", R"("")"});
}

TEST(JsonSchema, RecursiveReferences) {
  const std::string list =
      R"({"$ref":"#/$defs/list","$defs":{"list":{"type":"object","properties":{"value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/list"},{"type":"null"}]}},"required":["value","next"]}}})";
  expect(list, {R"({"value":1,"next":null})", R"({"value":1,"next":{"value":2,"next":null}})"},
         {R"({"value":1})", R"({"value":1,"next":{}})"});
  // The spelling of pydantic.
  expect(R"({"type":"object","properties":{"child":{"allOf":[{"$ref":"#"}],"description":"d"}}})",
         {"{}", R"({"child":{"child":{}}})"}, {R"({"child":1})"});
  expect(R"({"definitions":{"a/b~c %":{"type":"null"}},"$ref":"#/definitions/a~1b~0c%20%25"})", {"null"},
         {"1"});
  // Two recursive schemas that both hold.
  expect(
      R"({"allOf":[{"$ref":"#/$defs/x"},{"$ref":"#/$defs/y"}],"$defs":{"x":{"type":"object","properties":{"p":{"$ref":"#/$defs/x"},"q":{"type":"integer"}}},"y":{"type":"object","properties":{"p":{"$ref":"#/$defs/y"},"q":{"minimum":5}}}}})",
      {R"({"p":{"q":5},"q":7})"}, {R"({"p":{"q":4}})"});
  // A cycle of choices admits only its other alternatives.
  expect(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", {"null"}, {"1"});
}

TEST(JsonSchema, RefusesWithPlaceAndReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type":"object","properties":{"a":{"not":{}}}})", "#/properties/a/not"},
      {R"({"type":"array","uniqueItems":true})", "#/uniqueItems"},
      {R"({"type":"object","patternProperties":{}})", "#/patternProperties"},
      {R"({"if":{}})", "#/if"},
      {R"({"type":"strng"})", "#/type"},
      {R"_({"type":"string","pattern":"(?=a)"})_", "#/pattern"},
      {R"_({"type":"string","pattern":"(a)\\1"})_", "at byte 4"},
      {R"({"type":"string","pattern":"a^b"})", "'^'"},
      {R"({"type":"string","pattern":"[a"})", "ends too early"},
      {R"({"type":"string","pattern":"(a"})", "')' is missing"},
      {R"_({"type":"string","pattern":"a)"})_", "closes no group"},
      {R"({"type":"string","pattern":"a**"})", "quantifier"},
      {R"({"type":"string","pattern":"\\bword"})", "escape"},
      {R"({"type":"string","format":"phone"})", "'phone'"},
      {R"({"type":"string","minLength":-1})", "#/minLength"},
      {R"({"type":"string","minLength":"1"})", "#/minLength"},
      {R"({"type":"number","multipleOf":0.01})", "#/multipleOf"},
      {R"({"type":"number","minimum":"0"})", "#/minimum"},
      {R"({"type":"number","exclusiveMinimum":true})", "#/exclusiveMinimum"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "no JSON value matches"},
      {R"({"type":"integer","minimum":1e30})", "no JSON value matches"},
      {R"({"$ref":"#/$defs/none"})", "leads nowhere"},
      {R"({"$ref":"http://example.org/s.json"})", "#/$ref"},
      {R"({"$ref":"#"})", "comes back to itself"},
      {R"({"allOf":[{"$ref":"#"}]})", "comes back to itself"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no JSON value matches"},
      {R"({"type":"array","items":[{}]})", "#/items"},
      {R"({"type":"object","minProperties":1})", "#/minProperties"},
      {R"({"type":"object","required":"a"})", "#/required"},
      {R"({"type":"object","properties":[]})", "#/properties"},
      {R"({"type":"object","properties":{"a":5}})", "#/properties/a"},
      {R"({"enum":[]})", "#/enum"},
      {R"({"anyOf":[]})", "#/anyOf"},
      {R"({"enum":["a"],"minLength":1})", "#/minLength"},
      {"false", "no JSON value matches"},
      {"[1", "no valid JSON"},
      {"5", "must be an object"},
      {R"({"a":1,"a":2})", "'a' twice"},
      {R"({"type":"object","properties":{"a":{},"a":{}}})", "'a' twice"},
      {R"({"const":1e999})", "out of range"},
  };
  for (const auto& [schema, part] : cases)
    EXPECT_NE(refusal(schema).find(part), std::string::npos) << schema << ": " << refusal(schema);
}

TEST(JsonSchema, RandomTextsValidate) {
  int texts = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomSchemas random(seed);
    const OrderedJson schema = random.schema();
    const auto grammar       = compiled(schema.dump());
    for (int i = 0; i < 5; ++i, ++texts) {
      const std::string text = random_text(grammar, random, 20000);
      const auto value       = OrderedJson::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema << " gave " << text;
      ASSERT_TRUE(validates(schema, value)) << schema << " gave " << text;
    }
  }
}

TEST(JsonSchema, EveryInstanceIsAcceptedAndMutationsOnlyIfTheyValidate) {
  int mutations = 0, accepted = 0;
  for (uint32_t seed = 1000; seed < 1400; ++seed) {
    RandomSchemas random(seed);
    const OrderedJson schema = random.schema();
    const auto grammar       = compiled(schema.dump());
    for (int i = 0; i < 5; ++i) {
      const OrderedJson value = random.instance(schema);
      ASSERT_TRUE(validates(schema, value)) << schema << " " << value;
      const std::string text = value.dump();
      ASSERT_TRUE(accepts(grammar, text)) << schema << " refuses " << text;
      ASSERT_TRUE(accepts(grammar, spaced(text))) << schema << " refuses " << spaced(text);
      for (int j = 0; j < 20; ++j, ++mutations) {
        std::string mutated = text;
        const auto at       = static_cast<size_t>(random.below(static_cast<int64_t>(text.size())));
        const char other    = "0129-.e\"\\{}[],: atrunl\x80\xc3"[random.below(23)];
        switch (random.below(3)) {
          case 0:
            mutated[at] = other;
            break;
          case 1:
            mutated.insert(at, 1, other);
            break;
          case 2:
            mutated.erase(at, 1);
            break;
        }
        if (!accepts(grammar, mutated)) continue;
        ++accepted;
        const auto parsed = OrderedJson::parse(mutated, nullptr, false);
        ASSERT_FALSE(parsed.is_discarded()) << schema << " admits " << mutated;
        ASSERT_TRUE(validates(schema, parsed)) << schema << " admits " << mutated;
      }
    }
  }
  EXPECT_GT(accepted, 100) << "of " << mutations;  // else the check above checks nothing
}

TEST(JsonSchema, HostileSchemasEndWithinBounds) {
  const auto repeated = [](const std::string& part, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += part;
    return text;
  };
  const std::string deep = repeated(R"({"type":"array","items":)", 5000) + "{}" + repeated("}", 5000);
  EXPECT_NE(refusal(deep).find("nested deeper"), std::string::npos);
  refusal(repeated("[", 100000));

  // Each definition doubles the expanded size of the one before.
  std::string doubling = R"({"$ref":"#/$defs/d40","$defs":{"d0":{"type":"null"})";
  std::string product  = R"({"allOf":[)";
  for (int i = 1; i <= 40; ++i) {
    doubling += fmt::format(
        R"(,"d{}":{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d{}"}},"b":{{"$ref":"#/$defs/d{}"}}}}}})",
        i, i - 1, i - 1);
    product +=
        fmt::format(R"({}{{"anyOf":[{{"minLength":{}}},{{"maxLength":{}}}]}})", i > 1 ? "," : "", i, 100 + i);
  }
  EXPECT_TRUE(accepts(compiled(doubling + "}}"), R"({"a":{"b":{}},"b":{}})"));
  EXPECT_NE(refusal(product + "]}").find("too large"), std::string::npos);

  // Alternatives that stay indistinguishable: 2^n parser states after n levels.
  const auto ambiguous = compiled(R"({"$ref":"#/$defs/t","$defs":{"t":{"anyOf":[
      {"type":"object","properties":{"x":{"$ref":"#/$defs/t"},"y":{"type":"integer"}},"required":["x","y"]},
      {"type":"object","properties":{"x":{"$ref":"#/$defs/t"},"y":{"type":"string"}},"required":["x","y"]},
      {"type":"null"}]}}})");
  std::string nested, ends;
  for (int i = 0; i < 50; ++i) nested += R"({"x":)", ends += R"(,"y":1})";
  EXPECT_TRUE(accepts(ambiguous, nested + "null" + ends));

  for (const char* bomb : {"^((a{1000}){1000}){1000}$", "(a|a)*b.{40}c.{40}d", "((((((a*)*)*)*)*)*)*b",
                           "^(.{1,1000}){1,1000}$", "(a?){5000}a{5000}", ".*a.{30}"}) {
    const auto grammar = compile_json_schema(OrderedJson{{"type", "string"}, {"pattern", bomb}}.dump());
    if (!grammar) {
      EXPECT_NE(grammar.error().message.find("too large"), std::string::npos) << bomb;
    }
  }
  const auto long_strings = compile_json_schema(R"({"type":"string","minLength":900000000,"pattern":"a"})");
  EXPECT_FALSE(long_strings);
  EXPECT_TRUE(compile_json_schema(R"({"type":"string","minLength":900000000})"));
  EXPECT_TRUE(compile_json_schema(R"({"type":"array","minItems":900000000})"));

  OrderedJson large = {{"enum", OrderedJson::array()}};
  for (int i = 0; i < 20000; ++i) large["enum"].push_back(fmt::format("value{}", i));
  const auto enumeration = compile_json_schema(large.dump());
  ASSERT_TRUE(enumeration) << enumeration.error().message;
  EXPECT_TRUE(accepts(*enumeration, R"("value19999")"));
  EXPECT_FALSE(accepts(*enumeration, R"("value20000")"));

  // A thousand alternatives, each with the thousand properties of the enclosing schema.
  OrderedJson wide = {
      {"type", "object"}, {"properties", OrderedJson::object()}, {"anyOf", OrderedJson::array()}};
  for (int i = 0; i < 1000; ++i) {
    wide["properties"][fmt::format("p{}", i)] = OrderedJson::object();
    wide["anyOf"].push_back({{"required", {fmt::format("p{}", i)}}});
  }
  EXPECT_NE(refusal(wide.dump()).find("too large"), std::string::npos);

  std::string chain = R"({"$ref":"#/$defs/c0","$defs":{)";
  for (int i = 0; i < 4000; ++i) chain += fmt::format(R"("c{}":{{"$ref":"#/$defs/c{}"}},)", i, i + 1);
  refusal(chain + R"("c4000":{"type":"null"}}})");
  std::string objects = R"({"$ref":"#/$defs/c0","$defs":{)";
  for (int i = 0; i < 2000; ++i)
    objects +=
        fmt::format(R"("c{}":{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/c{}"}}}}}},)", i, i + 1);
  EXPECT_TRUE(accepts(compiled(objects + R"("c2000":{"type":"null"}}})"), R"({"a":{"a":{}}})"));
}

TEST(JsonSchema, DepthOfOutputIsBounded) {
  const auto any    = compiled("{}");
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(accepts(any, nested(kMaxJsonDepth)));
  EXPECT_FALSE(accepts(any, nested(kMaxJsonDepth + 1)));
}

TEST(JsonSchema, NamedSchemas) {
  const std::vector<NamedSchema> named = {
      {"get \"it\"",
       R"({"type":"object","properties":{"x":{"$ref":"#/$defs/i"}},"required":["x"],"$defs":{"i":{"type":"integer"}}})"},
      {"go", R"({"type":"object","properties":{},"$defs":{"i":{"type":"null"}}})"}};
  const auto grammar = compile_named_schemas(named);
  ASSERT_TRUE(grammar);
  EXPECT_TRUE(accepts(*grammar, R"({"name": "get \"it\"", "arguments": {"x": 1}})"));
  EXPECT_TRUE(accepts(*grammar, R"({"name":"go","arguments":{}})"));
  EXPECT_FALSE(accepts(*grammar, R"({"name":"go","arguments":{"x":1}})"));
  EXPECT_FALSE(accepts(*grammar, R"({"name":"other","arguments":{}})"));
  const auto refused = compile_named_schemas(std::vector<NamedSchema>{{"bad", R"({"not":{}})"}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("'bad'"), std::string::npos);
}

}  // namespace
}  // namespace fathom::grammar
