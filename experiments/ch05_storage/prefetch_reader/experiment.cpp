// Reading and computing use different parts of a machine. Done in turns they take the sum of their times, and
// half of the machine is idle at any moment; a second buffer and a reader thread make it the larger of the
// two.
#include "fingerprints.h"

namespace fathom::lab::prefetch_reader {

const Experiment<Fingerprints> fingerprints{
    .question =
        "How much of the time to read a file hides behind the work on it, with a reader thread and two "
        "buffers?",
    .limit    = Limit::disk,
    .axes     = {{"blocks", {4096}}},
    .check_at = {{"blocks", {0, 1, 61, 255, 256, 257, 513, 769}}},
    .variants =
        {
            {.id         = "read_then_compute",
             .launch     = read_then_compute,
             .techniques = {},
             .idea       = "1 MiB at a time, in turns"},
            {.id         = "double_buffered",
             .launch     = double_buffered,
             .techniques = {"prefetching"},
             .idea       = "a reader thread fills one buffer while the other is worked on",
             .prediction = predict::ratio(1.6),
             .threads    = 2},
        },
    .catalog = {"storage-006"},
};
FATHOM_REGISTER(fingerprints);

}  // namespace fathom::lab::prefetch_reader
