// The Markdown of notes.md as HTML: headings, paragraphs, lists, tables, code blocks, and within lines `code`
// and **bold**. Everything else stays the text it is, so links show their words and nothing leaves the page.
#pragma once

#include <string>
#include <string_view>

namespace fathom::report {

// `skip_title`: leaves out a heading of the first level, which repeats the experiment's name.
std::string markdown_html(std::string_view text, bool skip_title = false);
std::string inline_html(std::string_view text);  // one line: escaped, with <code> and <b>

}  // namespace fathom::report
