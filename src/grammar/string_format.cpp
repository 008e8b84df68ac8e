#include "grammar/string_format.h"

#include <array>
#include <utility>

namespace fathom::grammar {

std::string_view pattern_of_format(std::string_view format) {
  // RFC 3339, with the Gregorian calendar's lengths of months and leap years.
#define FATHOM_DATE                                                                                          \
  "((\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]" \
  ")))"                                                                                                      \
  "|(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define FATHOM_TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define FATHOM_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define FATHOM_BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kPatterns = {{
      {"date", "^" FATHOM_DATE "$"},
      {"time", "^" FATHOM_TIME "$"},
      {"date-time", "^" FATHOM_DATE "T" FATHOM_TIME "$"},
      // ISO 8601 durations, by the grammar of RFC 3339, appendix A.
      {"duration",
       "^P(\\d{1,9}W|(\\d{1,9}Y(\\d{1,9}M(\\d{1,9}D)?)?|\\d{1,9}M(\\d{1,9}D)?|\\d{1,9}D)(T(\\d{1,9}H(\\d{1,9}"
       "M(\\d{1,9}S)?)?"
       "|\\d{1,9}M(\\d{1,9}S)?|\\d{1,9}S))?|T(\\d{1,9}H(\\d{1,9}M(\\d{1,9}S)?)?|\\d{1,9}M(\\d{1,9}S)?|\\d{1,"
       "9}S))$"},
      {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
      // Addresses of RFC 5321 without quotes, comments and literal hosts.
      {"email", "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@([A-Za-z0-9]+(-[A-Za-z0-9]+)*\\.)+[A-Za-z]{2,24}$"},
      {"hostname", "^" FATHOM_LABEL "(\\." FATHOM_LABEL "){0,3}$"},
      {"ipv4", "^(" FATHOM_BYTE "\\.){3}" FATHOM_BYTE "$"},
      {"ipv6", "^([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$"},
  }};
#undef FATHOM_DATE
#undef FATHOM_TIME
#undef FATHOM_LABEL
#undef FATHOM_BYTE
  for (const auto& [name, pattern] : kPatterns)
    if (name == format) return pattern;
  return "";
}

}  // namespace fathom::grammar
