// What a report adds to the frame of every page: its style, and the script that sorts, filters and opens
// rows.
#pragma once

#include <string_view>

namespace fathom::report {

std::string_view report_style();   // CSS
std::string_view report_script();  // JavaScript; without it every row still opens and everything can be read

}  // namespace fathom::report
