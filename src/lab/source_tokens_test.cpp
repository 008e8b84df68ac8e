#include "lab/source_tokens.h"

#include <gtest/gtest.h>

namespace fathom::lab {
namespace {

std::string text_of(std::string_view source) { return tokens_of(source).text; }

TEST(SourceTokens, CommentsAndFormatDoNotCount) {
  const std::string plain = text_of("int f(int a){return a+1;}\n");
  EXPECT_EQ(plain, "int\nf\n(\nint\na\n)\n{\nreturn\na\n+\n1\n;\n}\n");
  EXPECT_EQ(text_of("// what f does\nint f(int a) {  // a is small\n  return a /* one more */ + 1;\n}"),
            plain);
  EXPECT_EQ(text_of("int f(\n    int a)\n{\n\treturn a\\\n + 1;\n}\n\n"), plain);
  EXPECT_EQ(text_of("#pragma once\n\n"
                    "int f(int a) { return a + 1; }"),
            plain);
  EXPECT_EQ(text_of("/* unfinished"), "");
  EXPECT_EQ(text_of(""), "");
}

TEST(SourceTokens, WhatTheCompilerSeesCounts) {
  EXPECT_NE(text_of("a + +b"), text_of("a ++b"));
  EXPECT_NE(text_of("a - - b"), text_of("a -- b"));
  EXPECT_NE(text_of("int a"), text_of("inta"));
  EXPECT_NE(text_of("x = 1;"), text_of("x = 2;"));
  EXPECT_NE(text_of("k<<<grid, block>>>(p)"), text_of("k<< <grid, block>> >(p)"));
  EXPECT_NE(text_of("x = 1.5e-3f;"), text_of("x = 1.5e - 3f;"));
  EXPECT_EQ(text_of("1'000 0x1p-4 .5f 0xe+1"), "1'000\n0x1p-4\n.5f\n0xe\n+\n1\n");
  EXPECT_EQ(text_of("a<=>b->*c...::d"), "a\n<=>\nb\n->*\nc\n...\n::\nd\n");
}

TEST(SourceTokens, LiteralsAreKeptAsTheyAre) {
  EXPECT_EQ(text_of(R"(puts("a // b /* c */  d");)"), "puts\n(\n\"a // b /* c */  d\"\n)\n;\n");
  EXPECT_NE(text_of(R"(puts("a  b"))"), text_of(R"(puts("a b"))"));
  EXPECT_EQ(text_of(R"('"' '\'' '\\' "\"//")"), "'\"'\n'\\''\n'\\\\'\n\"\\\"//\"\n");
  EXPECT_EQ(text_of("R\"x(a\n// b)\" )x\" c"), "R\"x(a\n// b)\" )x\"\nc\n");
  EXPECT_EQ(text_of("u8\"a\" L'b' R2 u"), "u8\"a\"\nL'b'\nR2\nu\n");
  EXPECT_EQ(text_of("f(\"one \"\n  \"two\" /* and */ \"\");"), text_of("f(\"one two\");"))
      << "clang-format breaks long strings";
}

TEST(SourceTokens, AMacroEndsWithItsLine) {
  EXPECT_NE(text_of("#define A 1\n+ 2"), text_of("#define A 1 \\\n + 2\n"));
  EXPECT_EQ(text_of("#define A 1 \\\n + 2\n"), text_of("#  define A 1 + 2  // three\n"));
  EXPECT_NE(text_of("#define S(x) #x\nint a"), text_of("#define S(x) #x int a"));
  EXPECT_EQ(text_of("#include <a/b.h> // c\n"), "#\ninclude\n<a/b.h>\n#end\n");
}

TEST(SourceTokens, QuotedIncludesInOrder) {
  const auto tokens = tokens_of(
      "#include \"z.h\"\n  #  include \"kernels/a.h\"  // why\n// #include \"n.h\"\n"
      "const char* s = \"#include \\\"n.h\\\"\";\n#include <n.h>\n#include \"b.h\"");
  EXPECT_EQ(tokens.quoted_includes, (std::vector<std::string>{"z.h", "kernels/a.h", "b.h"}));
}

}  // namespace
}  // namespace fathom::lab
