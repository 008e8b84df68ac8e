// tokenizer.json: any bytes give either a tokenizer that round-trips text or an error. A JSON object is also
// applied to a good file as a merge patch (RFC 7386); otherwise few inputs would get past the vocabulary.
#include "model/tokenizer.h"

#include <string>

#include "core/expect.h"
#include "core/strict_json.h"
#include "core/utf8.h"
#include "tests/fuzz/synthetic.h"

namespace {

using namespace fathom;

// False if the file is rejected.
bool try_file(std::string_view json) {
  using namespace fathom;
  using namespace fathom::model;
  const auto tokenizer = Tokenizer::parse(json, "tokenizer.json");
  if (!tokenizer) {
    FATHOM_EXPECT(tokenizer.error().message.starts_with("tokenizer.json: "), "an error must name its file");
    return false;
  }
  constexpr std::string_view kText =
      "Banana's fin, 1234 caf\xC3\xA9\n\n  <|end|> \xF0\x9F\x98\x80\xFF\xF0\x9F";
  for (const AddedTokens added : {AddedTokens::as_text, AddedTokens::recognised}) {
    const auto ids = tokenizer->encode(kText, added);
    if (!ids) continue;  // the file's pattern exceeded PCRE2's limits
    FATHOM_EXPECT(tokenizer->decode(*ids) == well_formed(kText), "a text did not come back");
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try_file(input);
  if (const auto change = fathom::parse_strict_json(input); change && change->is_object()) {
    static const nlohmann::json kGood = synthetic_json();
    nlohmann::json changed            = kGood;
    changed.merge_patch(*change);
    const bool read = try_file(changed.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    FATHOM_EXPECT(read || !change->empty(), "the good file is refused");
  }
  return 0;
}
