#include "report/markdown.h"

#include <gtest/gtest.h>

namespace fathom::report {
namespace {

TEST(Markdown, BlocksBecomeElements) {
  EXPECT_EQ(markdown_html("# T\n\none\ntwo\n\n## S\nthree", true),
            "<p>one two</p>\n<h6>S</h6>\n<p>three</p>\n");
  EXPECT_EQ(markdown_html("# T"), "<h6>T</h6>\n");
  EXPECT_EQ(markdown_html("- a\n  b\n- c\n\nd"), "<ul>\n<li>a b</li>\n<li>c</li>\n</ul>\n<p>d</p>\n");
  EXPECT_EQ(markdown_html("1. a\n2. b"), "<ol>\n<li>a</li>\n<li>b</li>\n</ol>\n");
  EXPECT_EQ(markdown_html("```\n- x < y\n```\nz"), "<pre>- x &lt; y\n</pre>\n<p>z</p>\n");
  EXPECT_EQ(markdown_html("| a | `b|c` |\n|---|---:|\n| 1 | 2 |"),
            "<div class=\"scroll\"><table>\n<tr><th>a</th><th><code>b|c</code></th></tr>\n"
            "<tr><td>1</td><td>2</td></tr>\n</table></div>\n");
}

TEST(Markdown, WordsAreEscapedAndMarked) {
  EXPECT_EQ(inline_html("`a<b>` is **not `x`** <i> & *this*"),
            "<code>a&lt;b&gt;</code> is <b>not <code>x</code></b> &lt;i&gt; &amp; *this*");
  EXPECT_EQ(inline_html("an open ` and ** stay"), "an open ` and ** stay");
  EXPECT_EQ(inline_html(""), "");
}

TEST(Markdown, EndsWhateverTheText) {
  for (const char* text :
       {"", "\n\n", "```", "|", "-", "- ", "#", "####### x", "1.", "**", "||\n|", "12. x\n- y"})
    EXPECT_LT(markdown_html(text).size(), 200u) << text;
}

}  // namespace
}  // namespace fathom::report
