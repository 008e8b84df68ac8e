// The shared frame and small parts of the report's pages.
#pragma once

#include <string>
#include <string_view>

#include "lab/record.h"
#include "report/highlights.h"

namespace fathom::report {

// Doctype to <body>, with the styles of all pages and `more_style`.
std::string page_head(std::string_view title, std::string_view more_style = "");
std::string page_foot();

// Counts as a list: a sign, the number and the word, so that colour is never the only carrier of meaning.
// Counts that a section of the page `report` explains link to it; "" is this page.
std::string tally_html(const Tally& tally, std::string_view report = "");
std::string verdict_html(const lab::VariantRecord& variant, bool advisory);
std::string scroll_box(std::string_view name, std::string_view table);  // scrolls sideways inside itself
std::string date_text(std::string_view iso);  // "2026-05-02T10:00:00Z" -> "2026-05-02 10:00 UTC"

}  // namespace fathom::report
