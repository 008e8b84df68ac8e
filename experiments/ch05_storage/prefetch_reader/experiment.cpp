// Reading and computing use different parts of a machine. Done alternately they take the sum of their times;
// with a second buffer and a reader thread they take the larger of the two.
#include "lab/experiment.h"
#include "fingerprints.h"

namespace fathom::lab::prefetch_reader {

const Experiment<Fingerprints> fingerprints{
    .question =
        "How much of the time to read a file hides behind the work on it, with a reader thread and two "
        "buffers?",
    .limit    = Limit::none,  // a virtual disk has no stable rate (notes.md)
    .axes     = {{"blocks", {4096}}},
    .check_at = {{"blocks", {0, 1, 61, 255, 256, 257, 513, 769}}},
    .variants =
        {
            {.id         = "read_then_compute",
             .launch     = read_then_compute,
             .techniques = {},
             .idea       = "read 1 MiB, compute, read the next"},
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
