// Text to ids and back: any bytes return as the nearest well-formed UTF-8, whether decoded at once or
// streamed; and any ids (two bytes of input each) stream to the same text as decoding at once.
#include <string>
#include <vector>

#include "core/expect.h"
#include "core/utf8.h"
#include "model/tokenizer.h"
#include "tests/fuzz/synthetic.h"

namespace {

using namespace fathom;
using namespace fathom::model;

void expect_streams(const std::vector<TokenId>& ids) {
  for (const bool skip : {false, true}) {
    Detokenizer detokenizer(synthetic(), skip);
    std::string streamed;
    const auto take = [&](const std::string& part) {
      FATHOM_EXPECT(is_well_formed(part), "a part of the stream is no UTF-8");
      streamed += part;
    };
    for (const TokenId id : ids) take(detokenizer.add(id));
    take(detokenizer.finish());
    FATHOM_EXPECT(streamed == synthetic().decode(ids, skip), "the stream is not the text");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string expected = well_formed(text);
  FATHOM_EXPECT(is_well_formed(expected) && well_formed(expected) == expected,
                "well_formed() makes no UTF-8");
  FATHOM_EXPECT(is_well_formed(text) == (text == expected), "is_well_formed() and well_formed() differ");
  FATHOM_EXPECT(incomplete_suffix(text) <= 3, "no character begins so far from the end");

  for (const AddedTokens added : {AddedTokens::as_text, AddedTokens::recognised}) {
    const auto ids = synthetic().encode(text, added);
    FATHOM_EXPECT(ids.has_value(), "a text cannot be encoded");
    FATHOM_EXPECT(synthetic().decode(*ids) == expected, "a text did not come back");
    expect_streams(*ids);
  }
  std::vector<TokenId> ids;
  for (size_t i = 0; i + 1 < size; i += 2) ids.push_back(data[i] | data[i + 1] << 8);
  expect_streams(ids);
  return 0;
}
